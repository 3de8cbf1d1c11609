// Package orchestrator runs cycles for one cluster while it holds the cluster's
// orchestration lock. A cycle reads the state, compares it with the last view,
// journals the differences as events, asks the deciders, and writes a report.
// Everything it writes is fenced by the lock.
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
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// Options are what an Orchestrator needs. Client, Cluster and Node must be set.
type Options struct {
	Client   *consul.Client
	Prefix   string
	Cluster  string
	Node     string        // who this is; shown to others
	Interval time.Duration // between cycles while nothing happens; default 10 s
	Deciders []Decider     // asked in this order
	Sinks    []Sink        // each name once
	Probe    Probe         // default: TCP to the port on which the local agent gossips
	Grants   bool          // pace rollouts
	Quiet    time.Duration // without grants after Consul's KV was restored; default 1 min
	Journal  JournalOptions
	Lock     kv.LeaseOptions
	Log      hclog.Logger
}

// Orchestrator is one agent's candidacy for orchestrating one cluster.
type Orchestrator struct {
	o        Options
	store    *kv.Store
	cluster  *cluster.Cluster
	ledger   *cluster.Cluster
	rollouts *rollout.Rollouts

	mu     sync.Mutex
	status Status
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
	o.Log = o.Log.With("cluster", o.Cluster)
	o.Lock.Holder.Node, o.Journal.Node = o.Node, o.Node
	return &Orchestrator{
		o: o, store: kv.New(o.Client, path.Join(o.Prefix, o.Cluster)),
		cluster: cluster.New(o.Client, o.Prefix, o.Cluster), ledger: cluster.New(o.Client, o.Prefix, o.Cluster),
		rollouts: rollout.New(o.Client, o.Prefix, o.Cluster), status: Status{Cluster: o.Cluster},
	}
}

// Run means the cluster's lock and works whenever it holds it, until ctx
// ends; then it gives the lock back, so that another can continue at once, and
// returns nil.
func (o *Orchestrator) Run(ctx context.Context) error {
	const spread, denied = time.Second, 10 * time.Second
	for ctx.Err() == nil {
		held, err := o.store.Lock(ctx, cluster.OrchestratorLock, o.o.Lock)
		if err != nil {
			if ctx.Err() == nil {
				o.o.Log.Warn("cannot stand for the orchestration of the cluster", "error", err)
			}
			_ = concurrency.Sleep(ctx, denied/2+rand.N(denied)) // ends with ctx
			continue
		}
		o.work(held)
		if err := held.Release(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, kv.ErrLockLost)) {
			o.o.Log.Warn("the orchestration of the cluster ended here", "error", err)
		}
		_ = concurrency.Sleep(ctx, rand.N(spread)) // ends with ctx
	}
	return nil
}

// work runs cycles while the lock is held.
func (o *Orchestrator) work(held *kv.Lease) {
	o.o.Log.Info("orchestrating the cluster")
	o.setStatus(func(s *Status) { s.Active, s.Since, s.Epoch = true, time.Now().UTC(), held.Epoch() })
	defer o.setStatus(func(s *Status) { s.Active, s.Since, s.Epoch, s.Sinks, s.Fails = false, time.Time{}, 0, nil, 0 })
	t := newTerm(o, held)
	t.run(held.Context())
	o.o.Log.Info("no longer orchestrating the cluster")
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
