package rollout

import (
	"context"

	"github.com/jorc/jorc/internal/kv"
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
	if !write && !resize {
		return false, nil
	}
	whole := s.group.Exists && !s.badGroup
	if !whole && resize {
		if whole, err = r.unclaimed(ctx); err != nil {
			return false, err
		}
	}
	if resize && whole {
		r.group.SwapIn(t, s.group, s.Group.Resize(limit))
	} else {
		t.CheckIndex(keyGroup, s.group.Index)
	}
	if _, err := t.Commit(ctx); err != nil {
		return false, err
	}
	if resize && (limit > s.Group.Max || !whole) {
		return true, r.wake(ctx, limit)
	}
	return true, nil
}

// unclaimed tells whether nobody has a claim, so that a group which is not
// there, or damaged, can be made anew. Otherwise package slots makes it of the
// claims.
func (r *Rollouts) unclaimed(ctx context.Context) (bool, error) {
	names, err := kv.NewTextTree(r.store, keyGroup+"/").Names(ctx)
	return len(names) == 0, err
}

// wake lets those go for whom there is room now, and repairs the group.
func (r *Rollouts) wake(ctx context.Context, limit int) error {
	group := slots.New(r.store, slots.Options{})
	defer group.Close(ctx)
	return group.Resize(ctx, Slots, limit)
}
