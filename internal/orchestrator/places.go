package orchestrator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/event"
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
	offers   *change.Offers

	// over: Consul's KV was restored, so what a plan would be made of may not hold. This term makes no plan from then on.
	over atomic.Bool

	mu      concurrency.Exclusive // also held during requests
	ledger  kv.Entry[change.Ledger]
	renewed bool // the ledger is as this term wrote it last
	begun   bool
	demands map[string]pace.Demand // of changes that wait for a place, by change
}

func newPlaces(t *term) *places {
	rollouts := t.Orchestrator.rollouts.Held(t.held)
	return &places{t: t, mu: concurrency.NewExclusive(), rollouts: rollouts, offers: change.NewOffers(t.held), demands: map[string]pace.Demand{}}
}

// round is the turn of the planners of a pass.
type round struct {
	places *places
	State  cluster.State // with the results of probes
	asked  uint64        // index of cluster.PrefixRuns before the state was read
	ledger kv.Entry[change.Ledger]
	base   *pace.Account // who is out; nil: it was not asked for
	// read caches what rollout returns.
	read *readRollout
}

// plan calls do with a state that is not older than what this term wrote last. No
// plan is made beside it. After an error it is not known what was written: the next
// round renews the ledger, so that what was sent late cannot be carried out, and reads
// everything again.
func (p *places) plan(ctx context.Context, do func(ctx context.Context, r *round) error) error {
	r, err := p.begin(ctx)
	if err != nil {
		return err
	}
	err = do(ctx, r)
	p.end(r, err == nil)
	return err
}

// stands returns nil unless Consul's KV was restored; then it returns once the term has ended.
func (p *places) stands(ctx context.Context) error {
	if p.over.Load() {
		<-ctx.Done() // the term is about to end
		return ctx.Err()
	}
	return nil
}

// begin begins a round, in which no other begins. Without an error it has to be ended.
func (p *places) begin(ctx context.Context) (r *round, err error) {
	if err := p.stands(ctx); err != nil {
		return nil, err
	}
	if err := p.mu.LockContext(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.mu.Unlock()
		}
	}()
	if !p.renewed {
		quiet, renewal := p.ledger.Value.Quiet, change.Renewal{Begin: !p.begun, Known: p.t.ledger(), Restored: p.t.sawRestore(), Quiet: p.t.o.Quiet}
		if renewal.Begin { // hosts know of a restore that came before this process
			s, err := p.t.watcher.State(ctx)
			if err != nil {
				return nil, err
			}
			renewal.State = &s
		}
		renewed, err := p.offers.Renew(ctx, renewal)
		if err != nil {
			return nil, err
		}
		p.ledger = renewed
		p.t.wrote(p.ledger.Value)
		if now := p.ledger.Value.Quiet; now.After(quiet) && time.Now().Before(now) {
			p.t.o.Log.Warn("Consul's KV was restored: nothing is granted for a while", "until", now)
			if p.begun { // what was read before may not hold
				p.over.Store(true)
				p.t.end()
				return nil, p.stands(ctx)
			}
		}
		if p.begun { // in a new term everything was read just now
			p.t.watcher.Reset()
		}
		p.renewed, p.begun = true, true
	}
	p.renewed = false // until the round has ended well
	r = &round{places: p, ledger: p.ledger}
	return r, r.load(ctx)
}

// load reads the state.
func (r *round) load(ctx context.Context) (err error) {
	p := r.places
	r.read, r.base = nil, nil
	r.asked, _ = p.t.watcher.Index(cluster.PrefixRuns)
	if r.State, err = p.t.watcher.State(ctx); err != nil {
		return err
	}
	if probes, known := p.t.probes.Get(); known {
		r.State = r.State.WithProbes(probes)
	}
	return nil
}

// end ends a round; well: it is known what was written in it.
func (p *places) end(r *round, well bool) {
	if well {
		p.ledger, p.renewed = r.ledger, true
	}
	p.mu.Unlock()
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
		if r.read.stored, r.read.err = r.places.rollouts.StoredIn(&r.State, r.ledger.Value); r.read.err == nil {
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
		r.base = r.places.t.count(&r.State, members, r.places.t.life())
	}
	return r.left(d), nil
}

// left is account once it was counted who is out, beside hosts that are being taken.
func (r *round) left(d pace.Demand, taken ...string) *pace.Account {
	return r.base.LeftFor(d, slices.Collect(maps.Values(r.places.demands)), taken...)
}

// count counts who is out of service.
func (o *Orchestrator) count(s *cluster.State, members rollout.State, life budget.Life) *pace.Account {
	return budget.Count(s, members, budget.DocumentsOf(o.store, s.Stages), o.holder(), life, time.Now())
}

// life is what the last cycle knows of hosts.
func (t *term) life() budget.Life {
	seen := t.lastObserved()
	if seen == nil {
		return nil
	}
	return seen.view.Life
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

// last gives the orchestrator's lock away when nothing but this host is left for the change
// to take: another candidate then takes this host out. The change offered nothing now.
func (r *round) last(d pace.Demand) {
	if r.base == nil || len(d.Nodes) != 1 || d.Nodes[0] != r.places.t.o.Node {
		return
	}
	if limit, ok := r.left(d).Admit(d.Nodes[0]); !ok && limit.Kind == pace.OfHolder {
		r.places.t.giveAway(d.Change)
	}
}

// sayAlone logs that this host, which holds the orchestrator's lock, is one of the nodes that
// are taken out of service with a budget.
func (r *round) sayAlone(nodes []string) {
	if t := r.places.t; r.base != nil && slices.Contains(nodes, t.o.Node) {
		t.o.Log.Warn("this host is taken out of service while it holds the orchestrator's lock: no other candidate is up")
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

// transaction is what a round writes at once.
type transaction struct {
	by        string // the decider, as reports show it
	decisions []event.Decision
	grants    []change.Next // of at most change.PerTransaction hosts
	offers    bool          // hosts are offered something beside grants
	offered   []string      // the hosts that are offered something for which they go out of service
	do        func(*kv.Txn)
}

// write carries t out, with the swap of the ledger if hosts are granted or offered something. The state of the round has
// the grants then. It returns kv.ErrConflict, consul.ErrOutcomeUnknown or kv.ErrLockLost, or another error after which nothing
// was written.
func (r *round) write(ctx context.Context, t transaction) error {
	p := r.places
	r.sayAlone(t.offered)
	if err := p.stands(ctx); err != nil {
		return err
	}
	swaps := len(t.grants) > 0 || t.offers
	var offering change.Offering
	done, err := p.t.outbox.commit(ctx, t.by, t.decisions, func(txn *kv.Txn) {
		t.do(txn)
		if swaps {
			offering = p.offers.Add(txn, r.ledger, t.grants)
		}
	})
	p.t.o.Log.Debug("grants", "by", t.by, "offered", len(t.offered), "written", len(t.grants), "error", err)
	if err != nil {
		return err
	}
	if len(t.decisions) > 0 {
		p.t.changes.Notify() // a cycle journals them
	}
	if swaps {
		var written map[string]kv.Entry[string]
		r.ledger, written = offering.Written(done)
		p.t.wrote(r.ledger.Value)
		r.State, r.read = r.State.WithGrants(written), nil
		r.take(t.offered)
	}
	return nil
}

// grant writes what hosts are granted, some forty at a time, and what is decided: do and the decisions are part of the first
// transaction, fence of each. It returns what write returns; what was written before stays.
func (r *round) grant(ctx context.Context, by string, decisions []event.Decision, next []change.Next, do, fence func(*kv.Txn)) error {
	for first := true; first || len(next) > 0; first = false {
		part, offered, free := r.part(next)
		next = next[len(part):]
		err := r.write(ctx, transaction{by: by, decisions: decisions, grants: part, offered: offered, do: func(txn *kv.Txn) {
			if first && do != nil {
				do(txn)
			}
			fence(txn)
			for _, node := range free {
				txn.CheckIndex(cluster.ReportKey(node), r.State.Hosts[node].Index)
			}
		}})
		if err != nil {
			return err
		}
		decisions = nil
	}
	return nil
}

// part is the first of what hosts are granted, as much as a transaction holds, with the hosts that are offered something, and the ones
// of them that are at work: they take no place, and only as long as their reports say so.
func (r *round) part(next []change.Next) (part []change.Next, offered, free []string) {
	for i, n := range next {
		offers := slices.ContainsFunc(n.Grants, func(g change.Grant) bool { return g.State == pace.Offered })
		host := r.State.Hosts[n.Node]
		works := offers && host != nil && host.Report.AtWork()
		if i > 0 && i+len(free) >= change.PerTransaction {
			break
		}
		part = append(part, n)
		if offers {
			offered = append(offered, n.Node)
		}
		if works {
			free = append(free, n.Node)
		}
	}
	return part, offered, free
}

// take counts nodes as out for the planners that follow in the round.
func (r *round) take(nodes []string) {
	for _, node := range nodes {
		r.base.Take(node)
	}
}

// overtaken reports whether err says that nothing was written, as something else was.
func overtaken(err error) bool {
	return errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrLockLost)
}
