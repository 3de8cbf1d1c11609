package runs

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
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

	// Begin returns when something new may start (the node is not on hold and the
	// cluster is not paused), and the index of the cluster's control as it is then: a job begins
	// only as long as that is so. nil: always, whatever the control says.
	Begin func(ctx context.Context) (control uint64, err error)
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

// Worker does one node's part in runs. It reads what the node is granted, and writes what it
// says of that: twice for each run, when that starts and when it ends.
type Worker struct {
	o       WorkerOptions
	runs    *Runs
	grants  kv.Doc[change.Grants]
	results kv.Doc[Results]
	retry   time.Duration // the first pause after a failure

	learning sync.Mutex                  // held while now is compared and set
	now      concurrency.Latest[granted] // as far as this node knows

	saying concurrency.Exclusive // held while results are written
	said   kv.Entry[Results]     // as they were read or written last
	known  bool                  // said is
	reset  time.Time             // as granted has it when said was read

	hook func(step string) // tests die here
}

// granted is what a node is granted.
type granted struct {
	kv.Entry[change.Grants]

	reset time.Time // when Consul's KV last went backwards; zero: not since this worker began
}

// learn takes over what a request of this worker read, unless the watch has delivered
// something newer meanwhile, which it does not deliver again.
func (w *Worker) learn(e kv.Entry[change.Grants]) {
	w.learning.Lock()
	defer w.learning.Unlock()
	if now, known := w.now.Get(); !known || e.Index > now.Index {
		w.now.Set(granted{e, now.reset})
	}
}

// job is the grant of a job; ok is false without one.
func (g granted) job(job string) (e Queued, ok bool) {
	one, ok := g.Value.Job(job)
	if ok {
		e = queued(one)
	}
	return e, ok
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
	return &Worker{
		o: o, runs: r, grants: change.GrantsAt(o.Store, o.Node), results: r.results.At(o.Node), retry: time.Second,
		saying: concurrency.NewExclusive(), hook: func(string) {},
	}
}

// backoff gives the pauses between attempts to reach Consul.
func (w *Worker) backoff() *concurrency.Backoff { return concurrency.NewBackoff(w.retry, time.Minute) }

// Run executes the jobs that the node is granted, in their order, until ctx ends; then it
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

// watch follows what the node is granted.
func (w *Worker) watch(ctx context.Context) error {
	failing := false
	return w.grants.Watch(ctx, func(u kv.Update[change.Grants]) {
		w.learning.Lock()
		defer w.learning.Unlock()
		now, _ := w.now.Get()
		switch {
		case u.Err != nil:
			if !failing {
				w.o.Log.Warn("cannot read which jobs this node is granted; the last ones count", "key", w.grants.Key(), "error", u.Err)
			}
			failing = true
			return
		case !u.Entry.Exists && now.Exists && !u.Reset:
			w.o.Log.Warn("the grants of this node are gone from Consul; the last ones count", "key", w.grants.Key())
			failing = false
			return
		}
		failing = false
		next := granted{u.Entry, now.reset}
		if u.Reset { // what was said may not be stored
			next.reset = time.Now()
		}
		w.now.Set(next) // also with a lower index
	})
}

// liftUnknown ends the maintenance for jobs that are no longer granted: their grants were taken out
// while no agent ran.
func (w *Worker) liftUnknown(ctx context.Context) error {
	if w.o.Maintenance == nil {
		return nil
	}
	now, err := w.now.Wait(ctx, func(granted) bool { return true })
	if err != nil {
		return err
	}
	for _, job := range w.o.Maintenance.Jobs() {
		if _, is := now.job(job); !is {
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
	over, reset := map[string]bool{}, time.Time{} // jobs that have ended here
	for {
		var next Queued
		_, err := w.now.Wait(ctx, func(now granted) bool {
			if !now.reset.Equal(reset) { // their ends may have to be written again
				clear(over)
				reset = now.reset
			}
			maps.DeleteFunc(over, func(job string, _ bool) bool { _, is := now.job(job); return !is })
			for _, g := range now.Value.Jobs() {
				if e := queued(g); e.lane(l.node) == l && !over[e.Job] {
					next = e
					return true
				}
			}
			return false
		})
		if err != nil {
			return err
		}
		said, err := w.saidOf(ctx, next.Job)
		if err != nil {
			return err
		}
		if next.Result = said; !said.State.Ended() {
			if err := w.execute(ctx, r, next); err != nil {
				return err
			}
		}
		over[next.Job] = true
	}
}

// saidOf is what this node has said of a job, however long it takes to read that. It returns ctx's error.
func (w *Worker) saidOf(ctx context.Context, job string) (r Result, err error) {
	err = concurrency.Retry(ctx, w.backoff(), func(ctx context.Context) error {
		if err := w.saying.LockContext(ctx); err != nil {
			return err
		}
		defer w.saying.Unlock()
		err := w.read(ctx)
		r = w.said.Value.of(job)
		return err
	}, func(err error, pause time.Duration) {
		w.o.Log.Warn("cannot read what this node said of its jobs, will retry", "key", w.results.Key(), "error", err, "again_in", pause)
	})
	return r, err
}

// read reads the results unless they are known. Damaged ones count as none. The caller holds saying.
func (w *Worker) read(ctx context.Context) error {
	if now, _ := w.now.Get(); !w.reset.Equal(now.reset) {
		w.known, w.reset = false, now.reset
	}
	if w.known {
		return nil
	}
	e, err := w.results.Get(ctx)
	if err != nil && !errors.Is(err, kv.ErrDamaged) {
		return err
	}
	w.said, w.known = e, true
	return nil
}

// say changes what this node says of a job, in a transaction that holds only while what fence adds does, and writes nothing
// if the node said the same before. What it said of jobs that are no longer granted goes. It returns kv.ErrConflict if the fence did
// not hold, or what Commit returns; the next attempt finds out what became of this one.
func (w *Worker) say(ctx context.Context, job string, fence func(*kv.Txn), change func(*Result)) error {
	if err := w.saying.LockContext(ctx); err != nil {
		return err
	}
	defer w.saying.Unlock()
	if err := w.read(ctx); err != nil {
		return err
	}
	old := w.said
	next := old.Value.of(job)
	change(&next)
	news := !text.SameJSON(next, old.Value.of(job))
	t := w.o.Store.Txn()
	if fence != nil {
		fence(t)
	}
	switch {
	case !news && fence == nil:
		return nil
	case !news:
		_, err := t.Commit(ctx)
		return err
	}
	now, _ := w.now.Get()
	results := old.Value.with(next, func(job string) bool { _, is := now.job(job); return is })
	w.results.SwapIn(t, old, results)
	w.known = false
	done, err := t.Commit(ctx)
	if err != nil {
		return err
	}
	w.said, err = w.results.Swapped(done, old, results)
	w.known = err == nil
	return err
}
