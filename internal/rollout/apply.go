package rollout

import (
	"context"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// Apply carries out a plan that was made of s by itself, see Prepare; it tells
// whether there was anything to do.
//
// It returns kv.ErrConflict (nothing was written: load, plan and apply again),
// kv.ErrLockLost in the store of a lock that was lost, or what Prepare,
// kv.Txn.Commit and Wake return.
func (r *Rollouts) Apply(ctx context.Context, s State, next Document, limit int) (changed bool, err error) {
	do, err := r.Prepare(ctx, s, next, limit)
	if do == nil || err != nil {
		return false, err
	}
	t := r.store.Txn()
	do(t)
	if _, err := t.Commit(ctx); err != nil {
		return false, err
	}
	if limit != slots.Keep && (limit > s.Group.Max || !s.whole()) {
		return true, r.Wake(ctx, limit)
	}
	return true, nil
}

// Prepare returns what carries out a plan that was made of s: it adds the
// document, the limit of the slot group, and the desired version when the plan is
// a rollback, to a transaction. That commits only if all that s says still is so,
// the claims of the group included: a node that took a slot and then read the old
// document, or one that takes it from now on and reads the new one, is never
// admitted by both. do is nil when nothing changes. After it was committed those
// who wait may have to be woken, see State.Stalled.
//
// It returns what kv.Tree.Names returns.
func (r *Rollouts) Prepare(ctx context.Context, s State, next Document, limit int) (do func(*kv.Txn), err error) {
	write := !s.Exists || !next.equal(s.Document)
	resize := limit != slots.Keep && limit > 0 && limit != s.Group.Max
	if !write && !resize {
		return nil, nil //nolint:nilnil // nothing to do is none
	}
	whole := s.whole()
	if !whole && resize {
		if whole, err = r.unclaimed(ctx); err != nil {
			return nil, err
		}
	}
	return func(t *kv.Txn) {
		switch {
		case !write:
			t.CheckIndex(keyRollout, s.doc.Index)
		case s.Desired == next.Version:
			t.CheckIndex(keyDesired, s.desired.Index)
			r.doc.SwapIn(t, s.doc, next)
		default:
			r.desired.SwapIn(t, s.desired, next.Version)
			r.doc.SwapIn(t, s.doc, next)
		}
		if resize && whole {
			r.group.SwapIn(t, s.group, s.Group.Resize(limit))
		} else {
			t.CheckIndex(keyGroup, s.group.Index)
		}
	}, nil
}

// whole tells whether the slot group is there and can be read.
func (s State) whole() bool { return s.group.Exists && !s.badGroup }

// Stalled returns the index of the group when somebody waits for a slot that is
// free, else 0: when it is the same at the next look, whoever made room could not
// say so, or had no time to; or who is the first of the queue is not there to see
// it.
func (s State) Stalled() (index uint64) {
	left := s.Held()
	if len(s.Outside) > 0 {
		left = left.Enter(s.Outside[0])
	}
	if !s.whole() || len(left.Next(1)) == 0 {
		return 0
	}
	return s.group.Index
}

// unclaimed tells whether nobody has a claim, so that a group which is not
// there, or damaged, can be made anew. Otherwise package slots makes it of the
// claims.
func (r *Rollouts) unclaimed(ctx context.Context) (bool, error) {
	names, err := kv.NewTextTree(r.store, keyGroup+"/").Names(ctx)
	claim := func(name string) bool { return strings.Contains(name, "/") } // the group's other keys are not below
	return !slices.ContainsFunc(names, claim), err
}

// Wake lets those go for whom there is room among limit slots, and repairs the
// group. It returns what slots.Slots.Resize returns.
func (r *Rollouts) Wake(ctx context.Context, limit int) error {
	group := slots.New(r.store, slots.Options{})
	defer group.Close(ctx)
	return group.Resize(ctx, Slots, limit)
}
