package runs

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/workflow"
)

// Runner runs workflows; *workflow.Runner is one.
type Runner interface {
	Run(ctx context.Context, j workflow.Job) (workflow.Result, error)
	Ready(ctx context.Context, id string) error
	Job(id string) (workflow.Result, error)
	Abandon(ctx context.Context, id, why string) (workflow.Result, error)
}

// WorkerOptions are what a Worker needs.
type WorkerOptions struct {
	Store *kv.Store // of the cluster's keys
	Node  string    // this node's name

	Runner Runner
	// Manager runs what is asked for on managers. Its tasks may start runs that
	// this node has a part in and wait for them, so it should have a state
	// directory of its own; nil: Runner.
	Manager Runner

	// Begin returns when something new may begin: nobody holds this node and the
	// cluster is not paused. nil: always.
	Begin func(ctx context.Context) error
	// Free returns when nobody holds this node any more. nil: after a pause.
	Free func(ctx context.Context) error
	// Version is the version that this node runs, for the templates of tasks;
	// optional.
	Version func() string
	Log     hclog.Logger
}

// Worker does one node's part in runs. It writes its queue's key only: once to
// create it, and twice for each run, when that begins and when it ends.
type Worker struct {
	o     WorkerOptions
	runs  *Runs
	queue kv.Doc[Queue]
	retry time.Duration // the first pause after a failure

	mu      sync.Mutex
	now     Queue
	known   bool          // now was read
	changed chan struct{} // closed when now is another

	hook func(step string) // tests die here
}

// NewWorker returns a Worker; it does no I/O.
func NewWorker(o WorkerOptions) *Worker {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Manager == nil {
		o.Manager = o.Runner
	}
	r := New(o.Store)
	return &Worker{o: o, runs: r, queue: r.queues.At(o.Node), retry: time.Second, changed: make(chan struct{}), hook: func(string) {}}
}

// Run runs what is in the node's queue, in its order, until ctx ends; then it
// returns nil. A job that is cut off by that goes on with the next Run, also in
// another process, and never begins anew. While Consul cannot be reached, the job
// that runs goes on to its end, and its result is told when Consul is back.
func (w *Worker) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.watch(ctx) })
	g.Go(func() error { return w.lane(ctx, w.o.Runner, false) })
	g.Go(func() error { return w.lane(ctx, w.o.Manager, true) })
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
				w.o.Log.Warn("what this node is to run cannot be read; what was known counts", "key", w.queue.Key(), "error", u.Err)
			}
			return
		}
		failing = false
		if _, known, _ := w.look(); !u.Entry.Exists && known {
			w.o.Log.Warn("this node's queue of runs is gone from Consul; what was known counts", "key", w.queue.Key())
			return
		}
		if !u.Entry.Exists {
			if _, err := w.queue.CompareAndSwap(ctx, kv.Entry[Queue]{}, Queue{Jobs: []Queued{}}); err != nil && !errors.Is(err, kv.ErrConflict) && ctx.Err() == nil {
				w.o.Log.Warn("this node's queue of runs could not be created", "key", w.queue.Key(), "error", err)
			}
		}
		w.learn(u.Entry.Value)
	})
}

// learn takes in what the queue is.
func (w *Worker) learn(q Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now, w.known = q, true
	close(w.changed)
	w.changed = make(chan struct{})
}

// look returns the queue as it is known, and what ends when that changes.
func (w *Worker) look() (Queue, bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.known, w.changed
}

// lane runs the jobs of one kind, one after the other.
func (w *Worker) lane(ctx context.Context, r Runner, manager bool) error {
	told := map[string]bool{} // jobs of which the end is in Consul
	for ctx.Err() == nil {
		q, known, changed := w.look()
		next := -1
		present := map[string]bool{}
		for i, e := range q.Jobs {
			present[e.Job] = true
			if e.Manager == manager && next < 0 && !e.State.Ended() && !told[e.Job] {
				next = i
			}
		}
		for job := range told {
			if known && !present[job] {
				delete(told, job)
			}
		}
		if next < 0 {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		e := q.Jobs[next]
		if err := (&performance{w: w, r: r, job: e.Job, log: w.o.Log.With("run", e.Run)}).perform(ctx, e); err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		told[e.Job] = true
	}
	return ctx.Err()
}
