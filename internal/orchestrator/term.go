package orchestrator

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
)

// term is what one holder of the lock knows; it ends with the lock.
type term struct {
	*Orchestrator
	held  *kv.Lease
	store *kv.Store // fenced

	watcher  *cluster.Watcher                                   // of the cluster, for cycles and grants
	probes   concurrency.Latest[map[string]cluster.ProbeResult] // of the last cycle
	journal  *Journal                                           // nil: what is current has to be read (again)
	prober   *prober
	requests *requests
	reports  *reports
	sinks    *sinkDispatcher
	// projector writes the index keys of nodes, whose tokens may not; nil: whether
	// Consul has ACLs is not known yet, or it has none and nodes write them.
	projector *cluster.Projector
	aclsKnown bool

	grants    *granter
	began     time.Time
	changes   concurrency.Signal // of the state
	requested concurrency.Signal // a cycle was requested
	backoff   time.Duration      // after failures; 0: the last cycle was fine
	fails     uint64             // cycles in a row that failed
	unsaved   []Event            // about that, not journalled yet
}

func newTerm(o *Orchestrator, held *kv.Lease) *term {
	t := &term{
		Orchestrator: o, held: held, store: held.Store(), began: time.Now(), requested: concurrency.NewSignal(),
		watcher: o.cluster.Consistent().NewWatcher(cluster.PrefixRuns),
	}
	t.changes = t.watcher.Changes()
	t.prober = newProber(o.o.Probe, o.o.Client)
	t.requests = newRequests(t.store, t.requested)
	t.reports = newReports(t.store)
	t.sinks = newSinkDispatcher(o, t.store)
	t.grants = newGranter(t)
	return t
}

// run runs cycles, and what wakes them, until ctx ends.
func (t *term) run(ctx context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.watch(ctx) })
	g.Go(func() error { return t.requests.watch(ctx, t) })
	g.Go(func() error { return t.sinks.run(ctx) })
	g.Go(func() error { return t.cycles(ctx) })
	if t.o.Grants {
		g.Go(func() error { return t.grants.run(ctx) })
	}
	_ = g.Wait() // all of them end with ctx
}

// watch reports changes to the cycles and the granter. A term ends when Consul's
// data was restored, since what was read before may no longer hold.
func (t *term) watch(ctx context.Context) error {
	err := t.watcher.Run(ctx)
	if errors.Is(err, cluster.ErrRestored) && t.o.Grants {
		t.o.Log.Warn("Consul's KV was restored: nothing is granted for a while", "for", t.o.Quiet)
		if err := t.Orchestrator.rollouts.Quiet(ctx, t.o.Quiet); err != nil {
			t.o.Log.Warn("the next orchestrator may not know that Consul's KV was restored", "error", err)
		}
	}
	return err
}

// What keeps cycles apart.
const (
	leastRest  = 100 * time.Millisecond
	restShare  = 4 // times the length of the last cycle: at most a fifth of the time is spent on cycles
	maxBackoff = 5 * time.Minute
)

// cycles runs one cycle after the other: when it is due, when something changed,
// and at once when a request waits for it.
func (t *term) cycles(ctx context.Context) error {
	due := t.resume(ctx)
	trigger := triggerStart
	for {
		if err := t.await(ctx, due, &trigger); err != nil {
			return err
		}
		began := time.Now()
		again := t.cycle(ctx, trigger)
		took := time.Since(began)
		rest := max(leastRest, restShare*took)
		due = pace{earliest: time.Now().Add(rest), due: began.Add(t.o.Interval), early: true}
		switch {
		case t.backoff > 0:
			due = pace{earliest: time.Now().Add(t.backoff), due: time.Now().Add(t.backoff)}
		case again:
			due.due = due.earliest
		}
		trigger = triggerDue
	}
}

// pace says when the next cycle is to run: at due, or when there is news at
// earliest if it may be early.
type pace struct {
	earliest, due time.Time
	early         bool
}

// await returns when the next cycle is to run, and says why.
func (t *term) await(ctx context.Context, p pace, trigger *string) error {
	at := p.due
	if at.Before(p.earliest) {
		at = p.earliest
	}
	changes := t.changes.C()
	if !p.early {
		changes = nil // what changes during a backoff is seen after it
	}
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.requested.C():
			*trigger = triggerRequest
			return nil
		case <-timer.C:
			return nil
		case <-changes:
			*trigger, changes = triggerChange, nil
			timer.Reset(max(0, time.Until(p.earliest)))
		}
	}
}

// resume reads when the cluster is next due: the one before may have
// failed, and have asked for patience.
func (t *term) resume(ctx context.Context) pace {
	now := time.Now()
	p := pace{earliest: now, due: now}
	next, err := t.requests.doc.Get(ctx)
	if err != nil {
		return p // the cycle tells
	}
	t.requests.accept(next.Value.Requests) // the first cycle answers them
	if next.Value.Due.After(now) {
		p.due = next.Value.Due
		if latest := now.Add(maxBackoff); p.due.After(latest) {
			p.due = latest
		}
		t.backoff = min(max(t.o.Interval, p.due.Sub(now)), maxBackoff)
	}
	return p
}
