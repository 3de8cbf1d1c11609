package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
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
// something of it or of its hosts changed. It returns nil when all members are there;
// ErrFailed; ErrStopped at once; ErrAside when only members are missing that an
// operator set aside; ErrNoMembers for a rollout without members; ctx's
// error; or what Show returns, for consul.ElectionTime when it is
// consul.IsTransient. A wait that begins after an operator's rollback is for the version
// that this made the desired one.
func (r *Rollouts) Wait(ctx context.Context, progress func(Status, []HostProgress)) error {
	return r.watchCurrent(ctx, func(o observed) (over bool, err error) {
		progress(o.status, o.hosts)
		return o.status.outcome(o.Desired, o.first, o.control.Paused)
	})
}

// Follow calls progress with the current rollout, and whenever something of it or
// of its hosts changed, until progress returns true. A rollout that takes its place
// is followed, too. It returns ctx's error, or what Show returns, as Wait does.
func (r *Rollouts) Follow(ctx context.Context, progress func(Status, []HostProgress) (over bool)) error {
	return r.watchCurrent(ctx, func(o observed) (bool, error) {
		if !o.Current() { // another program wrote the desired version; the orchestrator makes a rollout of that
			return false, nil
		}
		return progress(o.status, o.hosts), nil
	})
}

// observed is the rollout and its hosts at one moment.
type observed struct {
	Stored
	first   Document // when the watch began
	status  Status
	hosts   []HostProgress
	control cluster.Control
}

// watchCurrent calls check with the current rollout, and again whenever something
// that is read for it changed, until check says that it is over or returns an error.
func (r *Rollouts) watchCurrent(ctx context.Context, check func(observed) (over bool, err error)) error {
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
	watcher := r.cluster.Consistent().NewWatcher()
	changed := watcher.Changes()
	changed.Notify()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { r.watch(ctx, watcher, changed, cancel) })
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
		over := false
		o, err := r.observeCurrent(ctx, watcher)
		if err == nil {
			o.first = first.Document
			over, err = check(o)
		}
		away := errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrRateLimited)
		switch again = nil; {
		case away && ctx.Err() == nil: // the change that it missed may be the last one for a long time
			again = time.After(retryPause)
		case err != nil || over:
			return err
		}
	}
}

// watch runs watcher until ctx ends, and cancels when the token may no longer read
// the rollout: the watcher continues then.
func (r *Rollouts) watch(ctx context.Context, watcher *fleet.Watcher, changed concurrency.Signal, cancel context.CancelCauseFunc) {
	var document sync.WaitGroup
	defer document.Wait()
	document.Go(func() {
		_ = r.spec.Watch(ctx, func(u kv.Update[Spec]) { // ends with ctx
			if errors.Is(u.Err, consul.ErrDenied) || consul.IsPermanent(u.Err) {
				cancel(u.Err)
			}
		})
	})
	for errors.Is(watcher.Run(ctx), fleet.ErrRestored) {
		watcher.Reset()
		changed.Notify()
	}
}

// observeCurrent reads the rollout and, as far as they changed, its hosts.
func (r *Rollouts) observeCurrent(ctx context.Context, watcher *fleet.Watcher) (observed, error) {
	s, err := r.Load(ctx)
	if err == nil && s.Damaged != nil {
		err = s.usable(r)
	}
	if err != nil {
		return observed{}, err
	}
	state, err := watcher.State(ctx)
	if err == nil {
		err = state.Damaged[cluster.KeyControl]
	}
	if err != nil {
		return observed{}, err
	}
	v, err := StateOf(&state, s)
	if err != nil {
		return observed{}, err
	}
	d, now := s.Document, r.now()
	if d.Policy.Plain() { // continues without an orchestrator, which may not have planned yet
		d = Plan(d, v, now).Document
	}
	return observed{Stored: s, status: Describe(d, v, now), hosts: Progress(d, v, now), control: state.Control}, nil
}

// outcome says whether a wait that began with the rollout first is over, and how; see Wait.
func (s Status) outcome(desired string, first Document, paused *cluster.Hold) (over bool, err error) {
	arrived := s.Phase == pace.Done && len(s.Arrival.Missing) == 0
	switch back := s.RollbackOf; {
	case desired != s.Version: // another program wrote it
		return true, fmt.Errorf("%w: %s was superseded by %s, which is desired now", ErrFailed, first.Version, desired)
	case back != nil && back.Version == first.Version && s.Version != first.Version:
		return true, fmt.Errorf("%w: %s is rolled back to %s, which is desired now: %s", ErrFailed, first.Version, s.Version, back.Reason)
	case s.Version != first.Version:
		return true, fmt.Errorf("%w: %s was superseded by %s, which is desired now%s", ErrFailed, first.Version, s.Version, s.TriggeredText())
	case s.Phase == pace.Aborted:
		return true, fmt.Errorf("%w: that of %s was aborted", ErrStopped, s.Version)
	case s.Document.State() == Paused:
		return true, fmt.Errorf("%w: %s: 'jorc update resume' continues it", ErrStopped, s.Stopped.text())
	case arrived && back != nil && s.By == byJorc:
		return true, fmt.Errorf("%w: %s was rolled back to %s, which is desired now and which all members run: %s", ErrFailed, back.Version, s.Version, back.Reason)
	case arrived:
		return true, nil
	case paused != nil:
		return true, fmt.Errorf("%w: the cluster is paused since %s: %s", ErrStopped, paused.Since.UTC().Format(time.RFC3339), paused.Reason)
	case s.Arrival.Members == 0:
		return true, fmt.Errorf("%w: there is nothing to wait for", ErrNoMembers)
	case s.gated, len(s.Arrival.Missing) == 0: // a gate is passed first
		return false, nil
	}
	return s.Arrival.Outcome()
}
