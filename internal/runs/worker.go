package runs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/workflow"
)

// Runner drives jobs; *workflow.Runner is one.
type Runner interface {
	Drive(ctx context.Context, j workflow.Job, h workflow.Hooks) (workflow.Result, error)
	Job(id string) (workflow.Result, error)
}

// Maintenance takes a node out of service for jobs and brings it back: it is in maintenance while a
// job needs that. Repeating either is not an error and writes nothing.
type Maintenance interface {
	Begin(ctx context.Context, job, reason string) error
	Lift(ctx context.Context, job string) error
	// Jobs are the jobs that need it, also if an earlier process began it.
	Jobs() []string
}

// WorkerOptions are what a Worker needs.
type WorkerOptions struct {
	Store *kv.Store // of the cluster's keys
	Node  string    // this node's name

	Runner Runner
	// Manager drives jobs of runs on managers. Their tasks may start runs in which
	// this node takes part, and wait for them, so it should have a state directory of
	// its own; nil: Runner.
	Manager Runner
	// Gates drives jobs of gates, which may run beside those of Manager; nil: Manager.
	Gates Runner

	// Begin returns when something new may start: the node is not on hold and the
	// cluster is not paused. nil: always.
	Begin func(ctx context.Context) error
	// Held is why the node is on hold; empty: it is not. Optional.
	Held func() string
	// Maintenance takes this node out of service for jobs that disturb it; nil: nothing
	// does.
	Maintenance Maintenance
	// Version is the version that this node runs, for the templates of tasks;
	// optional.
	Version func() string
	Log     hclog.Logger
}

// Worker does one node's part in runs. It writes its queue's key only: once to
// create it, and twice for each run, when that starts and when it ends.
type Worker struct {
	o     WorkerOptions
	runs  *Runs
	queue kv.Doc[Queue]
	retry time.Duration // the first pause after a failure

	learning sync.Mutex                          // held while now is compared and set
	now      concurrency.Latest[kv.Entry[Queue]] // the queue as far as this node knows

	hook func(step string) // tests die here
}

// learn takes over what a request of this worker read or wrote, unless the watch has delivered
// something newer meanwhile, which it does not deliver again.
func (w *Worker) learn(e kv.Entry[Queue]) {
	w.learning.Lock()
	defer w.learning.Unlock()
	if now, known := w.now.Get(); !known || e.Index > now.Index {
		w.now.Set(e)
	}
}

// NewWorker returns a Worker; it does no I/O.
func NewWorker(o WorkerOptions) *Worker {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Manager == nil {
		o.Manager = o.Runner
	}
	if o.Gates == nil {
		o.Gates = o.Manager
	}
	r := New(o.Store)
	return &Worker{o: o, runs: r, queue: r.queues.At(o.Node), retry: time.Second, hook: func(string) {}}
}

// backoff gives the pauses between attempts to reach Consul.
func (w *Worker) backoff() *concurrency.Backoff { return concurrency.NewBackoff(w.retry, time.Minute) }

// Run executes what is in the node's queue, in its order, until ctx ends; then it
// returns nil. The next Run continues a job that this interrupts, also in another
// process, and never starts it a second time. While Consul cannot be reached, the running
// job continues to its end, and its result is reported when Consul is back.
func (w *Worker) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.watch(ctx) })
	g.Go(func() error {
		if err := w.liftUnknown(ctx); err != nil {
			return err
		}
		return w.lane(ctx, w.o.Runner, lane{node: w.o.Node})
	})
	g.Go(func() error { return w.lane(ctx, w.o.Manager, lane{node: w.o.Node, manager: true}) })
	g.Go(func() error { return w.lane(ctx, w.o.Gates, lane{node: w.o.Node, manager: true, gate: true}) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// watch follows the queue. It creates the key, since a watch of one that does
// not exist wakes for its neighbours.
func (w *Worker) watch(ctx context.Context) error {
	failing := false
	return w.queue.Watch(ctx, func(u kv.Update[Queue]) {
		if u.Err != nil {
			if !failing {
				failing = true
				w.o.Log.Warn("cannot read this node's queue of runs; the last one counts", "key", w.queue.Key(), "error", u.Err)
			}
			return
		}
		failing = false
		if _, known := w.now.Get(); !u.Entry.Exists && known {
			w.o.Log.Warn("this node's queue of runs is gone from Consul; the last one counts", "key", w.queue.Key())
			return
		}
		if !u.Entry.Exists {
			if _, err := w.queue.CompareAndSwap(ctx, kv.Entry[Queue]{}, Queue{Jobs: []Queued{}}); err != nil && !errors.Is(err, kv.ErrConflict) && ctx.Err() == nil {
				w.o.Log.Warn("cannot create this node's queue of runs", "key", w.queue.Key(), "error", err)
			}
		}
		w.learning.Lock()
		defer w.learning.Unlock()
		w.now.Set(u.Entry) // also with a lower index: Consul was restored
	})
}

// liftUnknown ends the maintenance for jobs that are no longer in the queue: they were
// taken out of it while no agent ran.
func (w *Worker) liftUnknown(ctx context.Context) error {
	if w.o.Maintenance == nil {
		return nil
	}
	q, err := w.now.Wait(ctx, func(kv.Entry[Queue]) bool { return true })
	if err != nil {
		return err
	}
	for _, job := range w.o.Maintenance.Jobs() {
		if q.Value.find(job) < 0 {
			if err := w.lift(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// lift brings the node back into service after a job, however long that takes. It returns
// ctx's error.
func (w *Worker) lift(ctx context.Context, job string) error {
	return concurrency.Retry(ctx, w.backoff(), func(ctx context.Context) error { return w.o.Maintenance.Lift(ctx, job) }, func(err error, pause time.Duration) {
		w.o.Log.Warn("cannot end the maintenance of this node, will retry", "job", job, "error", err, "again_in", pause)
	})
}

// lane executes the jobs of a lane, one after the other, until ctx ends.
func (w *Worker) lane(ctx context.Context, r Runner, l lane) error {
	reported := map[string]bool{} // jobs whose end is in Consul
	for {
		var next Queued
		_, err := w.now.Wait(ctx, func(now kv.Entry[Queue]) bool {
			q := now.Value
			for job := range reported {
				if q.find(job) < 0 {
					delete(reported, job)
				}
			}
			i := slices.IndexFunc(q.Jobs, func(e Queued) bool { return e.lane(l.node) == l && !e.State.Ended() && !reported[e.Job] })
			if i >= 0 {
				next = q.Jobs[i]
			}
			return i >= 0
		})
		if err != nil {
			return err
		}
		if err := w.execute(ctx, r, next); err != nil {
			return err
		}
		reported[next.Job] = true
	}
}
