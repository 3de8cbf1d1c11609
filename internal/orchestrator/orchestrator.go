// Package orchestrator runs cycles for one cluster while it holds the cluster's
// orchestration lock. A cycle reads the state, compares it with the last view,
// journals the differences as events, and writes a report.
// Everything it writes is fenced by the lock. Beside the cycles a pass plans changes of
// all kinds whenever something changed.
//
// What is decided stands at a key of its own from the transaction that carries it out until a
// cycle has journalled it, so that no decision waits for the journal and each becomes an event once.
//
// The view is kept in shards, the events in batches; both are written under new
// names and made current by one swap of a pointer. So each difference between two
// saved views is journalled exactly once, in order, also if an orchestrator is
// killed.
package orchestrator

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// Options are what an Orchestrator needs. Client, Cluster and Node must be set.
type Options struct {
	Client   *consul.Client
	Prefix   string
	Cluster  string
	Node     string        // who this is; shown to others
	Interval time.Duration // between cycles while nothing happens; default 10 s
	Sinks    []Sink        // each name once
	Probe    Probe         // default: TCP to the port on which the local agent gossips
	Grants   bool          // plan what reaches the hosts, and offer them grants
	RunGrace time.Duration // how long an agent may be down before its job of a run is lost; default runs.DefaultGrace
	// StageGates are the workflows that may be gates of stages.
	StageGates []string
	Quiet      time.Duration // without grants after Consul's KV was restored; default 1 min
	Journal    JournalOptions
	Lock       kv.LeaseOptions
	Log        hclog.Logger
	// Watcher is set to the watcher of the cluster while it holds the lock, so that others in this
	// process need none of their own, and to nil afterwards; nil: it is not shared.
	Watcher *concurrency.Latest[*fleet.Watcher]
}

// Orchestrator is one agent's candidacy for orchestrating one cluster.
type Orchestrator struct {
	o        Options
	store    *kv.Store
	cluster  *fleet.Cluster
	rollouts *rollout.Rollouts

	mu       sync.Mutex
	status   Status
	observed *observation   // by the last cycle; nil: it does not orchestrate
	runs     *runs.Progress // as the last pass left them; nil: it does not plan them
	// keeps is until when this host is taken out while it holds the lock: no other
	// candidate took it.
	keeps time.Time
	// known is the ledger that this process wrote last, and restored when it noticed that Consul's data was restored, which
	// the ledger does not say yet; zero: it did not.
	known    change.Ledger
	restored time.Time
}

// New returns an orchestrator. It does no I/O.
func New(o Options) *Orchestrator {
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.Quiet <= 0 {
		o.Quiet = quietAfterRestore
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Watcher == nil {
		o.Watcher = new(concurrency.Latest[*fleet.Watcher])
	}
	o.Log = o.Log.With("cluster", o.Cluster)
	o.Lock.Holder.Node, o.Journal.Node = o.Node, o.Node
	return &Orchestrator{
		o: o, store: kv.New(o.Client, path.Join(o.Prefix, o.Cluster)),
		cluster:  fleet.New(o.Client, o.Prefix, o.Cluster),
		rollouts: rollout.New(o.Client, o.Prefix, o.Cluster), status: Status{Cluster: o.Cluster},
	}
}

// Run means the cluster's lock and works whenever it holds it, until ctx
// ends; then it gives the lock back, so that another can continue at once, and
// returns nil.
func (o *Orchestrator) Run(ctx context.Context) error {
	const spread, denied = time.Second, 10 * time.Second
	lock := o.o.Lock
	lock.Restored = o.noticed
	for ctx.Err() == nil {
		held, err := o.store.Lock(ctx, cluster.OrchestratorLock, lock)
		if err != nil {
			if ctx.Err() == nil {
				o.o.Log.Warn("cannot stand for the orchestration of the cluster", "error", err)
			}
			_ = concurrency.Sleep(ctx, denied/2+rand.N(denied)) // ends with ctx
			continue
		}
		given := o.work(held)
		if err := held.Release(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, kv.ErrLockLost)) {
			o.o.Log.Warn("the orchestration of the cluster ended here", "error", err)
		}
		if given {
			o.awaitOther(ctx)
		}
		_ = concurrency.Sleep(ctx, rand.N(spread)) // ends with ctx
	}
	return nil
}

// Times of a lock that is given away.
const (
	// takenWithin is how long another candidate may take for a lock that is free. They all
	// watch it, so it is gone within a second unless none of them can take it.
	takenWithin = 15 * time.Second
	// keepsFor is for how long the lock is not given away again after none took it.
	keepsFor = 10 * time.Minute
)

// noticed notes that Consul's data was restored, which the ledger does not say yet.
func (o *Orchestrator) noticed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.restored = time.Now()
}

// sawRestore is when it noticed that last; zero: it did not.
func (o *Orchestrator) sawRestore() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.restored
}

// wrote notes the ledger that this process wrote last, in whatever term.
func (o *Orchestrator) wrote(l change.Ledger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = l
}

// ledger is the one that this process wrote last; the zero Ledger: it wrote none.
func (o *Orchestrator) ledger() change.Ledger {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known
}

// awaitOther returns when another host holds the lock that this one gave away, or none took it.
func (o *Orchestrator) awaitOther(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	taken := false
	_ = fleet.WatchOrchestrated(wait, o.store, func(held bool) {
		if held {
			taken = true
			cancel()
		}
	}) // ends with wait
	if taken || ctx.Err() != nil {
		return
	}
	o.o.Log.Warn("no other candidate took the orchestrator's lock: this host is taken out of service while it holds it", "for", keepsFor)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keeps = time.Now().Add(keepsFor)
}

// holder is the host that gives the lock away before it is taken out; empty: none does.
func (o *Orchestrator) holder() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Now().Before(o.keeps) {
		return ""
	}
	return o.o.Node
}

// work runs cycles while the lock is held. It reports whether the lock is to be given away.
func (o *Orchestrator) work(held *kv.Lease) (given bool) {
	o.o.Log.Info("orchestrating the cluster")
	o.setStatus(func(s *Status) { s.Active, s.Since, s.Epoch = true, time.Now().UTC(), held.Epoch() })
	defer o.setStatus(func(s *Status) { s.Active, s.Since, s.Epoch, s.Sinks, s.Fails = false, time.Time{}, 0, nil, 0 })
	defer func() { o.setObserved(nil); o.setRuns(nil) }()
	t := newTerm(o, held)
	o.o.Watcher.Set(t.watcher)
	defer o.o.Watcher.Set(nil)
	ctx, cancel := context.WithCancel(held.Context())
	defer cancel()
	t.end = cancel
	t.run(ctx)
	o.o.Log.Info("no longer orchestrating the cluster")
	return t.given.Load()
}

// giveAway ends the term, so that another candidate takes the lock. This host is the last that
// change has to take.
func (t *term) giveAway(change string) {
	t.o.Log.Info("gives the orchestrator's lock away: this host is the next to be taken out of service", "change", change)
	t.given.Store(true)
	t.end()
}

// Status is how an Orchestrator stands, for the status API.
type Status struct {
	Cluster   string            `json:"cluster"`
	Active    bool              `json:"active"` // it holds the lock
	Since     time.Time         `json:"since,omitzero"`
	Epoch     uint64            `json:"epoch"`     // of the lock: higher than that of all who held it before
	Cycles    uint64            `json:"cycles"`    // since the agent started
	Fails     uint64            `json:"fails"`     // cycles in a row that failed, up to the last
	Discarded uint64            `json:"discarded"` // requests that came while a cycle was running
	Last      *Report           `json:"last"`      // the last cycle; nil: none yet
	Aggregate Aggregate         `json:"aggregate"` // of the view it saw
	Seq       uint64            `json:"seq"`       // of the last event
	Sinks     map[string]uint64 `json:"sinks"`     // the last event that each was given
}

// Status returns how the orchestrator stands.
func (o *Orchestrator) Status() Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.status
	sinks := make(map[string]uint64, len(s.Sinks))
	for name, seq := range s.Sinks {
		sinks[name] = seq
	}
	s.Sinks = sinks
	return s
}

func (o *Orchestrator) setStatus(change func(s *Status)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.status)
}

func (o *Orchestrator) setObserved(seen *observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.observed = seen
}

// lastObserved returns what the last cycle saw; nil: it does not orchestrate.
func (o *Orchestrator) lastObserved() *observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.observed
}

// setRuns notes how far the runs are; nil: that is not known.
func (o *Orchestrator) setRuns(p *runs.Progress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs = p
}

// lastRuns returns how far the runs are; nil: that is not known.
func (o *Orchestrator) lastRuns() *runs.Progress {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.runs
}

// lastView returns the view that the last cycle saw.
func (o *Orchestrator) lastView() View {
	if seen := o.lastObserved(); seen != nil {
		return seen.view
	}
	return View{}
}

// term is what one holder of the lock knows; it ends with the lock.
type term struct {
	*Orchestrator
	held  *kv.Lease
	store *kv.Store // fenced

	watcher  *fleet.Watcher                                     // of the cluster, for cycles and grants
	probes   concurrency.Latest[map[string]cluster.ProbeResult] // of the last cycle
	journal  *Journal                                           // nil: what is current has to be read (again)
	views    views
	prober   *prober
	outbox   *outbox
	requests *requests
	reports  *reports
	sinks    *sinkDispatcher
	// projector writes the index keys of nodes, whose tokens may not; nil: whether
	// Consul has ACLs is not known yet, or it has none and nodes write them.
	projector *fleet.Projector
	aclsKnown bool

	end   context.CancelFunc // ends the term
	given atomic.Bool        // the term ends so that another candidate takes the lock

	places    *places
	grants    *granter
	began     time.Time
	changes   concurrency.Signal // of the state
	requested concurrency.Signal // a cycle was requested
	backoff   time.Duration      // after failures; 0: the last cycle was fine
	fails     uint64             // cycles in a row that failed
	unsaved   []Event            // about that, not journalled yet
	// controlChange is when time alone changes what holds the cluster; zero: never.
	controlChange time.Time
}

func newTerm(o *Orchestrator, held *kv.Lease) *term {
	t := &term{
		Orchestrator: o, held: held, store: held.Store(), began: time.Now(), requested: concurrency.NewSignal(),
		watcher: o.cluster.Consistent().NewWatcher(cluster.PrefixRuns, cluster.PrefixAudit, cluster.PrefixStages),
	}
	t.changes = t.watcher.Changes()
	t.prober = newProber(o.o.Probe, o.o.Client)
	t.outbox = newOutbox(t.store, held.Epoch())
	t.requests = newRequests(t.store, t.requested)
	t.reports = newReports(t.store)
	t.sinks = newSinkDispatcher(o, t.store)
	t.places = newPlaces(t)
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
	if errors.Is(err, fleet.ErrRestored) && t.o.Grants {
		t.quiet(ctx)
	}
	return err
}

// quiet has nothing planned in this term from now on, and nothing granted for a while, as Consul's KV was restored.
func (t *term) quiet(ctx context.Context) {
	t.places.over.Store(true) // the others must not wait until Quiet is written
	t.o.Log.Warn("Consul's KV was restored: nothing is granted for a while", "for", t.o.Quiet)
	if err := t.places.offers.Quiet(ctx, t.o.Quiet, t.ledger()); err != nil {
		t.noticed() // the next term of this process tries again
		t.o.Log.Warn("the next orchestrator may not know that Consul's KV was restored", "error", err)
	}
}

// What keeps cycles apart. At most a fifth of the time is spent on cycles, but what follows a quiet time does not wait for that. The
// changes of a moment are gathered: nothing that reaches hosts waits for a cycle.
const (
	leastRest  = 50 * time.Millisecond
	restShare  = 4
	restCredit = time.Second
	maxBackoff = 5 * time.Minute
)

// cycles runs one cycle after the other: when it is due, when something changed,
// and at once when a request waits for it.
func (t *term) cycles(ctx context.Context) error {
	due := t.resume(ctx)
	trigger := triggerStart
	rest := concurrency.Rest{Share: restShare, Credit: restCredit, Least: leastRest}
	for {
		if err := t.await(ctx, due, &trigger); err != nil {
			return err
		}
		began := time.Now()
		again := t.cycle(ctx, trigger)
		ended := time.Now()
		due = timing{earliest: ended.Add(rest.After(ended.Sub(began), ended)), due: began.Add(t.o.Interval), early: true}
		switch {
		case t.backoff > 0:
			due = timing{earliest: time.Now().Add(t.backoff), due: time.Now().Add(t.backoff)}
		case again:
			due.due = due.earliest
		default:
			due.due = pace.Earliest(due.due, t.controlChange)
		}
		trigger = triggerDue
	}
}

// timing says when the next cycle is to run: at due, or when there is news at
// earliest if it may be early.
type timing struct {
	earliest, due time.Time
	early         bool
}

// await returns when the next cycle is to run, and says why.
func (t *term) await(ctx context.Context, p timing, trigger *string) error {
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
			timer.Reset(max(leastRest, time.Until(p.earliest)))
		}
	}
}

// resume reads when the cluster is next due: the one before may have
// failed, and have asked for patience.
func (t *term) resume(ctx context.Context) timing {
	now := time.Now()
	p := timing{earliest: now, due: now}
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
