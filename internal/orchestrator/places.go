package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// places has the planners of all kinds of changes plan one after the other: each on a
// state that has what the others offered, with what the budget leaves. Every transaction
// that offers hosts something swaps the ledger.
type places struct {
	t        *term
	rollouts *rollout.Rollouts // in the store of the lock

	mu      sync.Mutex
	ledger  kv.Entry[rollout.Ledger]
	renewed bool // the ledger is as this term wrote it last
	begun   bool
	demands map[string]pace.Demand // of changes that wait for a place, by change
}

func newPlaces(t *term) *places {
	return &places{t: t, rollouts: t.Orchestrator.rollouts.Held(t.held), demands: map[string]pace.Demand{}}
}

// round is one planner's turn.
type round struct {
	places *places
	State  cluster.State // with the results of probes
	ledger kv.Entry[rollout.Ledger]
	base   *pace.Account // who is out; nil: it was not asked for
	// read caches what rollout returns.
	read *readRollout
}

// plan calls do with a state that is not older than what this term wrote last. No
// plan is made beside it. After an error it is not known what was written: the next
// round renews the ledger, so that what was sent late cannot be carried out, and reads
// everything again.
func (p *places) plan(ctx context.Context, do func(ctx context.Context, r *round) error) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.renewed {
		if p.ledger, err = p.rollouts.Renew(ctx, !p.begun); err != nil {
			return err
		}
		p.t.watcher.Reset()
		p.renewed, p.begun = true, true
	}
	p.renewed = false // until do has ended well
	r := &round{places: p, ledger: p.ledger}
	if r.State, err = p.t.watcher.State(ctx); err != nil {
		return err
	}
	if probes, known := p.t.probes.Get(); known {
		r.State = r.State.WithProbes(probes)
	}
	if err := do(ctx, r); err != nil {
		return err
	}
	p.ledger, p.renewed = r.ledger, true
	return nil
}

type readRollout struct {
	stored rollout.Stored
	state  rollout.State
	err    error
}

// rollout returns what is stored of the rollout, and the members as it sees them. It
// returns what rollout.StateOf returns.
func (r *round) rollout() (rollout.Stored, rollout.State, error) {
	if r.read == nil {
		r.read = new(readRollout)
		if r.read.stored, r.read.err = r.places.rollouts.StoredIn(&r.State, r.ledger); r.read.err == nil {
			r.read.state, r.read.err = rollout.StateOf(&r.State, r.read.stored)
		}
	}
	return r.read.stored, r.read.state, r.read.err
}

// account returns who is out of service and what the budget leaves for the demand; nil
// without a budget.
func (r *round) account(d pace.Demand) (*pace.Account, error) {
	if r.State.Control.Budget == nil {
		return nil, nil //nolint:nilnil // nil: no limit
	}
	if r.base == nil {
		_, members, err := r.rollout()
		if err != nil {
			return nil, err
		}
		r.base = r.places.t.count(&r.State, members)
	}
	return r.left(d), nil
}

// left is account once it was counted who is out.
func (r *round) left(d pace.Demand) *pace.Account {
	return r.base.LeftFor(d, slices.Collect(maps.Values(r.places.demands)))
}

// count counts who is out of service.
func (t *term) count(s *cluster.State, members rollout.State) *pace.Account {
	return change.Count(s, members, change.DocumentsOf(t.store, s.Stages), t.life(), time.Now())
}

// life is what the last cycle knows of hosts.
func (t *term) life() change.Life {
	seen := t.lastObserved()
	if seen == nil {
		return nil
	}
	return func(node string) (liveness, health time.Time) {
		n := seen.view.Nodes[node]
		return n.LifeSince, n.HealthSince
	}
}

// wants notes which hosts the change could not take; none: it waits for no place. Other
// planners plan again when it wants fewer than before: a place may be theirs.
func (r *round) wants(d pace.Demand) {
	p := r.places
	before := p.demands[d.Change]
	if len(d.Nodes) == 0 {
		delete(p.demands, d.Change)
	} else {
		p.demands[d.Change] = d
	}
	if len(d.Nodes) < len(before.Nodes) {
		p.t.grants.wake.Notify()
		p.t.changes.Notify()
	}
}

// forget forgets the demands of changes that accept does not accept.
func (r *round) forget(gone func(change string) bool) {
	for _, name := range slices.Collect(maps.Keys(r.places.demands)) {
		if gone(name) {
			r.wants(pace.Demand{Change: name})
		}
	}
}

// offer commits what do adds, together with the swap of the ledger: nodes are offered
// something in it.
func (r *round) offer(ctx context.Context, nodes []string, commit func(also func(*kv.Txn)) error) error {
	var next rollout.Ledger
	err := commit(func(t *kv.Txn) { next = r.places.rollouts.SwapLedger(t, r.ledger) })
	if err != nil {
		return err
	}
	e, err := r.places.rollouts.Ledger(ctx)
	switch {
	case err != nil:
		return err
	case e.Value != next:
		return fmt.Errorf("%w: the ledger of offers was swapped meanwhile", kv.ErrConflict)
	}
	r.ledger = e
	for _, node := range nodes {
		r.base.Take(node)
	}
	return nil
}

// overtaken reports whether err says that nothing was written, as something else was.
func overtaken(err error) bool {
	return errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrLockLost)
}
