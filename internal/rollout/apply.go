package rollout

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Replace returns what carries out a plan's document by itself, in the
// transaction of its events: it commits only if what s says of the rollout still
// is so. It is nil when nothing changes.
func (r *Rollouts) Replace(s Stored, next Document) func(*kv.Txn) {
	if s.Exists && next.equal(s.Document) {
		return nil
	}
	return func(t *kv.Txn) { r.write(t, s, next) }
}

// mostGrants is how many grants one transaction offers or withdraws: with the
// checks beside them it stays below Consul's 64 operations.
const mostGrants = 50

// Apply carries out the offers and withdrawals of a plan that was made of s and
// state: it swaps the ledger and, while all that s says is so, the grants, some
// fifty at a time. It returns the ledger as it is then.
//
// It returns kv.ErrConflict, consul.ErrOutcomeUnknown (Renew, load and plan again)
// or kv.ErrLockLost; what was written before stays.
func (r *Rollouts) Apply(ctx context.Context, s Stored, state State, p Planned) (kv.Entry[Ledger], error) {
	grants := make(map[string]Grant, len(state.Members))
	for _, m := range state.Members {
		grants[m.Node] = m.Grant
	}
	now := r.now().UTC().Truncate(time.Millisecond)
	type change struct {
		node string
		next Grant
	}
	var all []change
	for _, node := range p.Withdrawals {
		g := grants[node]
		g.State, g.Since, g.Tries = Withdrawn, now, g.Tries+1
		all = append(all, change{node, g})
	}
	for _, o := range p.Offers {
		all = append(all, change{o.Node, Grant{
			Version: p.Document.Version, State: Offered, Since: now, Session: r.session, Rollout: s.doc.Index,
			Until: p.Until, Tries: o.Tries, Retry: grants[o.Node].Retry,
		}})
	}
	for part := range slices.Chunk(all, mostGrants) {
		t := r.store.Txn()
		ledger := s.Ledger.next()
		r.ledgers.SwapIn(t, s.ledger, ledger)
		s.fence(t)
		for _, c := range part {
			old := grants[c.node]
			if c.next.State == Offered {
				c.next.ID = ledger.id(r.session)
			}
			r.grant(c.node).SwapIn(t, kv.Entry[Grant]{Index: old.index, Exists: old.index != 0}, c.next)
		}
		done, err := t.Commit(ctx)
		if err != nil {
			return s.ledger, err
		}
		s.Ledger, s.ledger = ledger, kv.Entry[Ledger]{Value: ledger, Index: done.Index(keyLedger), Exists: true}
	}
	return s.ledger, nil
}

// Renew swaps the ledger alone and returns it: no transaction that was sent before
// and swaps it, too, can be carried out from then on. With begin it counts a new
// term. It tries until that is certain and returns what Commit returns otherwise.
func (r *Rollouts) Renew(ctx context.Context, begin bool) (kv.Entry[Ledger], error) {
	return r.swapLedger(ctx, func(l Ledger) Ledger {
		if begin {
			l.Term, l.Seq = l.Term+1, 0
		}
		return l.next()
	})
}

// Quiet has orchestrators grant nothing for some time. It returns what Renew
// returns.
func (r *Rollouts) Quiet(ctx context.Context, long time.Duration) error {
	_, err := r.swapLedger(ctx, func(l Ledger) Ledger {
		l.Quiet = r.now().UTC().Truncate(time.Second).Add(long)
		return l.next()
	})
	return err
}

func (r *Rollouts) swapLedger(ctx context.Context, change func(Ledger) Ledger) (kv.Entry[Ledger], error) {
	for ctx.Err() == nil {
		e, err := r.ledgers.In(r.store.Consistent()).Get(ctx)
		if err != nil && !errors.Is(err, kv.ErrDamaged) {
			return kv.Entry[Ledger]{}, err
		}
		t := r.store.Txn()
		next := change(e.Value)
		r.ledgers.SwapIn(t, e, next)
		done, err := t.Commit(ctx)
		if err == nil {
			return kv.Entry[Ledger]{Value: next, Index: done.Index(keyLedger), Exists: true}, nil
		}
		if !errors.Is(err, kv.ErrConflict) && !errors.Is(err, consul.ErrOutcomeUnknown) {
			return kv.Entry[Ledger]{}, err
		}
	}
	return kv.Entry[Ledger]{}, context.Cause(ctx)
}
