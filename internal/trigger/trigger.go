// Package trigger runs workflows of this node when something in Consul changes:
// once per change, also across restarts.
package trigger

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/workflow"
)

// Runner runs jobs; *workflow.Runner is one.
type Runner interface {
	Run(ctx context.Context, j workflow.Job) (workflow.Result, error)
	Ready(ctx context.Context, id string) error
}

// Source calls observe with the current items and after each change until ctx
// ends. It does not report read errors: the last observation stays valid. observe
// takes ownership of its argument, and must not be called concurrently.
type Source interface {
	Watch(ctx context.Context, observe func(Observation)) error
}

// Observation holds all current items, or new events.
type Observation struct {
	Items map[string]Item
	// Happened: Items are events, named by their sequence numbers, that followed
	// earlier observations.
	Happened bool
	// UpTo, of events: events up to this number were observed, or happened before
	// the trigger existed.
	UpTo uint64
	// Restarted, of events: their numbers started again, so that the number of the last
	// handled event is void. UpTo is the number at that time.
	Restarted bool
}

// Options configure Run.
type Options struct {
	StateDir string // the triggers' states are in its directory "triggers"
	Triggers []config.Trigger
	// Source returns the source of t. after is the last handled event; known is
	// false if the trigger has handled none: then only new events count.
	Source func(t config.Trigger, after uint64, known bool) Source
	Runner Runner
	Free   func(ctx context.Context) error // returns when the host has no hold
	Log    hclog.Logger
}

// Run runs the workflows of o.Triggers on changes until ctx ends; then it
// returns nil.
func Run(ctx context.Context, o Options) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, t := range o.Triggers {
		w := &watcher{conf: t, o: o, log: o.Log.With("trigger", t.Name), file: filepath.Join(o.StateDir, "triggers", t.Name+".json"), wake: concurrency.NewSignal()}
		g.Go(func() error { return w.run(ctx) })
	}
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// run runs one trigger until ctx ends. If the state cannot be read or written,
// the trigger runs nothing and tries again later.
func (w *watcher) run(ctx context.Context) error {
	const again = 30 * time.Second
	for {
		err := w.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.log.Error("trigger failed, will retry", "error", err, "again_in", again)
		if concurrency.Sleep(ctx, again) != nil {
			return nil
		}
	}
}

// once reads the state, finishes a job that a restart interrupted, and follows
// the source. It returns the error that ended it.
func (w *watcher) once(ctx context.Context) error {
	var err error
	if w.seen, err = load(w.file, kind(w.conf)+" "+subject(w.conf)); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.o.Source(w.conf, w.seen.Event, w.seen.Known).Watch(ctx, w.observe) })
	g.Go(func() error { return w.follow(ctx) })
	return g.Wait()
}

// finish runs the pending job to its end, and removes it from the state.
func (w *watcher) finish(ctx context.Context) error {
	p := w.seen.Pending
	if p == nil {
		return nil
	}
	job := workflow.Job{ID: p.Job, Workflow: w.conf.Workflow, Origin: "trigger " + w.conf.Name, Change: p.Change}
	res, err := w.untilEnd(ctx, job)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, workflow.ErrUnknown), errors.Is(err, workflow.ErrInvalid), errors.Is(err, workflow.ErrDamaged):
		w.log.Error("cannot run the workflow; the change is skipped", "workflow", w.conf.Workflow, "job", p.Job, "error", err)
	case err != nil:
		return fmt.Errorf("job %s of workflow %q: %w", p.Job, w.conf.Workflow, err)
	case res.State == workflow.Success:
		w.log.Info("the workflow ran", "workflow", w.conf.Workflow, "job", p.Job)
	default:
		w.log.Error("the workflow did not succeed", "workflow", w.conf.Workflow, "job", p.Job, "state", res.State, "why", res.Why)
	}
	next := w.seen
	next.Pending = nil
	return w.save(next)
}

// untilEnd runs a job and continues it each time the condition that it waits for
// holds.
func (w *watcher) untilEnd(ctx context.Context, job workflow.Job) (workflow.Result, error) {
	for {
		res, err := w.o.Runner.Run(ctx, job)
		switch {
		case errors.Is(err, workflow.ErrBusy):
			err = concurrency.Sleep(ctx, time.Second)
		case err != nil || !res.Open:
			return res, err
		case res.State == workflow.Held:
			err = w.o.Free(ctx)
		case res.State == workflow.Pending:
			err = w.o.Runner.Ready(ctx, res.ID)
		case res.State == workflow.Reboot:
			<-ctx.Done()
			err = ctx.Err()
		}
		if err != nil {
			return res, err
		}
	}
}
