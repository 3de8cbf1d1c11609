package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
)

// Errors of Wait.
var (
	// ErrStopped: a change failed, and hosts take it only after an operator resumes the stage.
	ErrStopped = errors.New("the stage is stopped")
	// ErrPaused: the cluster is paused, so that no host gets a grant.
	ErrPaused = errors.New("the cluster is paused")
)

const (
	// gather is for how long changes are gathered before the hosts are read.
	gather = 50 * time.Millisecond
	// retryPause is the pause after a read that failed.
	retryPause = time.Second
)

// Wait waits until all hosts of a stage have the content that they want, and calls progress with
// the stage whenever something of it may have changed. It returns ErrStopped and ErrPaused at
// once, ErrNone for a stage that no host has, or any longer, ctx's error, or the error of count; while
// Consul cannot be reached it continues.
func Wait(ctx context.Context, c *fleet.Cluster, name string, count Count, progress func(Status)) error {
	c = c.Consistent()
	watcher := c.NewWatcher(cluster.PrefixStages)
	changed := watcher.Changes()
	changed.Notify()
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		for errors.Is(watcher.Run(ctx), fleet.ErrRestored) {
			watcher.Reset()
			changed.Notify()
		}
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
		s, paused, err := look(ctx, c, watcher, name, count)
		switch again = nil; {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited): // the change that it missed may be the last one for a long time
			again = time.After(retryPause)
			continue
		case err != nil:
			return err
		}
		progress(s)
		if over, err := s.outcome(paused); over {
			return err
		}
	}
}

// look reads a stage with what watcher knows.
func look(ctx context.Context, c *fleet.Cluster, watcher *fleet.Watcher, name string, count Count) (Status, *cluster.Hold, error) {
	state, err := watcher.State(ctx)
	if err == nil {
		err = state.Damaged[cluster.KeyControl]
	}
	if err != nil {
		return Status{}, nil, err
	}
	all, err := show(ctx, c, &state, name, count, time.Now())
	if err != nil {
		return Status{}, nil, err
	}
	return all[0], state.Control.Paused, nil
}

// outcome says whether a wait for the stage is over, and how.
func (s Status) outcome(paused *cluster.Hold) (over bool, err error) {
	switch {
	case s.State == StateStopped:
		return true, fmt.Errorf("%w: %s", ErrStopped, s.Waits())
	case s.State == StateDone:
		return true, nil
	case paused != nil:
		return true, fmt.Errorf("%w since %s: %s", ErrPaused, paused.Since.UTC().Format(time.RFC3339), paused.Reason)
	}
	return false, nil
}

// Waits is what the stage waits for, in one line: an operator, the next step, or the first host that has to
// wait. It is empty for a stage that waits for nothing.
func (s Status) Waits() string {
	for _, stop := range s.Stops {
		if stop.Resumed == nil {
			return "'jorc stage resume " + s.Stage + "': " + cmp.Or(stop.Node, stop.Step) + ": " + stop.Reason
		}
	}
	if s.Step != nil && len(s.Step.Waits) > 0 {
		return strings.Join(s.Step.Waits, "; ")
	}
	for _, h := range s.Hosts {
		if h.Waits != "" {
			return h.Node + ": " + h.Waits
		}
	}
	return ""
}
