package rollout

import (
	"context"

	"github.com/jorc/jorc/internal/slots"
)

// Apply carries out a plan that was made of s: the document, the limit of the
// slot group, and the desired version when the plan is a rollback, in one
// transaction. It is carried out only if all that s says still is so, the
// claims of the group included: a node that took a slot and then read the old
// document, or one that takes it from now on and reads the new one, is never
// admitted by both. Nothing is written when nothing changes; it tells whether
// it did.
//
// It returns kv.ErrConflict (nothing was written: load, plan and apply again),
// kv.ErrLockLost in the store of a lock that was lost, or what kv.Txn.Commit
// and slots.Resize return.
func (r *Rollouts) Apply(ctx context.Context, s State, next Document, limit int) (changed bool, err error) {
	t := r.store.Txn()
	write := !s.Exists || !next.equal(s.Document)
	resize := limit != slots.Keep && limit > 0 && limit != s.Group.Max
	if write {
		if s.Desired == next.Version {
			t.CheckIndex(keyDesired, s.desired.Index)
		} else {
			r.desired.SwapIn(t, s.desired, next.Version)
		}
		r.doc.SwapIn(t, s.doc, next)
	} else if resize {
		t.CheckIndex(keyRollout, s.doc.Index)
	}
	switch {
	case !write && !resize:
		return false, nil
	case resize && s.group.Exists && !s.badGroup:
		r.group.SwapIn(t, s.group, s.Group.Resize(limit))
	default:
		t.CheckIndex(keyGroup, s.group.Index)
	}
	if _, err := t.Commit(ctx); err != nil {
		return false, err
	}
	if resize && (limit > s.Group.Max || !s.group.Exists || s.badGroup) {
		return true, r.wake(ctx, limit)
	}
	return true, nil
}

// wake lets those go for whom there is room now, and makes the group when there
// is none.
func (r *Rollouts) wake(ctx context.Context, limit int) error {
	group := slots.New(r.store, slots.Options{})
	defer group.Close(ctx)
	return group.Resize(ctx, Slots, limit)
}
