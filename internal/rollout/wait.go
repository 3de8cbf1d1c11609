package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Errors of Wait.
var (
	// ErrFailed: members failed, it was rolled back, or another one took its place.
	ErrFailed = errors.New("the rollout failed")
	// ErrStopped: it, or the cluster, is paused, or it was aborted.
	ErrStopped = errors.New("the rollout is stopped")
)

const (
	// gather is for how long changes are gathered before all members are read.
	gather = 50 * time.Millisecond
	// retryPause is the pause after a read that failed.
	retryPause = time.Second
)

// Wait waits for the current rollout, and calls progress whenever
// something of it changed. It returns nil when all members are there; ErrFailed;
// ErrStopped at once; ErrNoMembers for a rollout without members; ctx's error; or
// what Show returns, for consul.ElectionTime when it is consul.IsTransient.
func (r *Rollouts) Wait(ctx context.Context, progress func(Status)) error {
	begin := time.Now()
	first, err := r.Show(ctx)
	for consul.IsTransient(err) && time.Since(begin) < consul.ElectionTime && concurrency.Sleep(ctx, retryPause) == nil {
		first, err = r.Show(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	changed := concurrency.NewSignal()
	changed.Notify()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	r.watch(ctx, &watching, func(err error) {
		if errors.Is(err, consul.ErrDenied) {
			cancel(err)
		}
		changed.Notify()
	})
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed.C():
		case <-again:
		}
		if concurrency.Sleep(ctx, gather) != nil {
			return context.Cause(ctx)
		}
		over, err := r.check(ctx, first.Document, progress)
		away := errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrRateLimited)
		switch again = nil; {
		case away && ctx.Err() == nil: // the change that it missed may be the last one for a long time
			again = time.After(retryPause)
		case err != nil || over:
			return err
		}
	}
}

// watch calls changed whenever something that counts did: the rollout, who
// arrived, who failed, and whether the cluster is paused.
func (r *Rollouts) watch(ctx context.Context, watching *sync.WaitGroup, changed func(error)) {
	watching.Go(func() { _ = r.doc.Watch(ctx, func(u kv.Update[Document]) { changed(u.Err) }) }) // these end with ctx
	watching.Go(func() {
		_ = r.cluster.WatchControl(ctx, func(u kv.Update[cluster.Control]) { changed(u.Err) })
	})
	watching.Go(func() { _ = r.cluster.WatchReports(ctx, changed) })
}

// check reports whether the wait is over, and how it ended.
func (r *Rollouts) check(ctx context.Context, first Document, progress func(Status)) (over bool, err error) {
	s, err := r.Load(ctx)
	if err != nil {
		return false, err
	}
	if s.Damaged != nil {
		return false, s.usable(r)
	}
	v, err := r.Observe(ctx, s)
	if err != nil {
		return false, err
	}
	control, err := r.cluster.Control(ctx)
	if err != nil {
		return false, err
	}
	d := s.Document
	if d.Policy.Plain() { // continues without an orchestrator, which may not have planned yet
		d = Plan(d, v, r.now()).Document
	}
	status := Describe(d, v, r.now())
	progress(status)
	if err := status.outcome(s.Desired, first); err != nil {
		return true, err
	}
	switch {
	case d.Phase == Done:
		return true, nil
	case control.Paused != nil:
		return true, fmt.Errorf("%w: the cluster is paused since %s: %s", ErrStopped, control.Paused.Since.UTC().Format(time.RFC3339), control.Paused.Reason)
	case status.Now.Members == 0:
		return true, fmt.Errorf("%w: there is nothing to wait for", ErrNoMembers)
	}
	return false, nil
}

// outcome is why the rollout that was first cannot end by itself; nil: it can, or
// it is done.
func (s Status) outcome(desired string, first Document) error {
	switch {
	case s.RollbackOf != nil && s.Version != first.Version:
		return fmt.Errorf("%w: %s is rolled back to %s: %s", ErrFailed, first.Version, s.Version, s.RollbackOf.Reason)
	case s.Version != first.Version || desired != first.Version:
		return fmt.Errorf("%w: %s was superseded by %s", ErrFailed, first.Version, desired)
	case s.Phase == Aborted:
		return fmt.Errorf("%w: that of %s was aborted", ErrStopped, s.Version)
	case s.Document.State() == Paused:
		return fmt.Errorf("%w: %s: 'jorc update resume' continues it", ErrStopped, s.Stopped.text())
	case s.Phase != Done:
		return nil
	case s.RollbackOf != nil:
		return fmt.Errorf("%w: %s was rolled back to %s: %s", ErrFailed, s.RollbackOf.Version, s.Version, s.RollbackOf.Reason)
	case len(s.Failed) > 0:
		return fmt.Errorf("%w: %d of %d members failed: %s", ErrFailed, len(s.Failed), s.Now.Members, failedText(s.Failed))
	}
	return nil
}

func failedText(all []Failed) string {
	var parts []string
	for _, f := range all[:min(len(all), mostNames)] {
		parts = append(parts, f.Node+": "+f.Reason)
	}
	if more := len(all) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, "; ")
}
