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

// Source tells what is there, and again whenever that changes, until ctx ends.
// Failures to read are not told: what was there last is believed. observe takes
// what it is given with it, and must be called by one goroutine at a time.
type Source interface {
	Watch(ctx context.Context, observe func(Observation)) error
}

// Observation is what is there: contents by the names of items. Events are
// observed apart: they happen, and are never gone.
type Observation struct {
	Items map[string]Item
	// Happened: Items are events that came after those that were told before,
	// by their sequence numbers, and not all there is.
	Happened bool
	// UpTo, of events: those up to this number were told, or came before anybody
	// wanted to know.
	UpTo uint64
	// Anew, of events: their numbers began anew, so that those which were handled
	// say nothing any more. UpTo is where that was noticed.
	Anew bool
}

// Options are what Run needs.
type Options struct {
	StateDir string // what was seen is kept in its directory "triggers"
	Triggers []config.Trigger
	// Source is where t looks. after is the last event that was handled; known is
	// false when none ever was: then only those that come are wanted.
	Source func(t config.Trigger, after uint64, known bool) Source
	Runner Runner
	Free   func(ctx context.Context) error // returns when nothing holds the host any more
	Log    hclog.Logger
}

// Run runs the workflows of o.Triggers on changes until ctx ends; then it
// returns nil.
func Run(ctx context.Context, o Options) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, t := range o.Triggers {
		w := &watcher{conf: t, o: o, log: o.Log.With("trigger", t.Name), file: filepath.Join(o.StateDir, "triggers", t.Name+".json"), news: make(chan struct{}, 1)}
		g.Go(func() error { return w.run(ctx) })
	}
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// run keeps one trigger. What keeps its state from being read or written down
// keeps it from running anything, and is tried again.
func (w *watcher) run(ctx context.Context) error {
	const again = 30 * time.Second
	for {
		err := w.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		w.log.Error("the trigger does nothing for now", "error", err, "again_in", again)
		if concurrency.Sleep(ctx, again) != nil {
			return nil
		}
	}
}

// once reads what was seen before, finishes what a restart has interrupted, and
// follows the source; it returns why that had to end.
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

// finish runs the pending job to its end, and takes it out of the state.
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
		w.log.Error("the workflow cannot be run; this change is passed over", "workflow", w.conf.Workflow, "job", p.Job, "error", err)
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

// untilEnd goes on with a job that waits for something.
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
