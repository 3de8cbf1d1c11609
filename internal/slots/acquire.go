package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// Acquire waits for a slot of the group. The slot is held as long as the lease,
// which must be given back with Release, also after it was lost and after ctx
// ended. limit is how many slots the group has from now on: 0 is any number,
// Keep leaves it; the latest request sets it, and takes no slot away.
//
// While Consul is unreachable Acquire keeps trying, and lines up again if its
// session ended meanwhile. It returns the cause of ctx's end; text.ErrName, kv.ErrNewer,
// consul.ErrDenied, consul.ErrRefused for names that this Consul takes in no key; or kv.ErrLockLost when the claim was unlocked by hand.
func (s *Slots) Acquire(ctx context.Context, group string, limit int, h Holder) (*kv.Lease, error) {
	if err := errors.Join(checkGroup(group), text.CheckSegment(h.Node)); err != nil {
		return nil, err
	}
	err := persist(ctx, func() error {
		if err := s.store.CheckNames(ctx, prefix+prefixGroup+group, prefix+claimKey(h.Node, group, "id")); err != nil {
			return err
		}
		return s.setMax(ctx, group, limit)
	})
	if err != nil {
		return nil, wrap(group, err)
	}
	for {
		lease, err := s.claim(ctx, group, h)
		sessionEnded := errors.Is(err, kv.ErrLockLost) && !errors.Is(err, kv.ErrTaken)
		if err == nil || ctx.Err() != nil || !sessionEnded {
			return lease, wrap(group, err)
		}
	}
}

// setMax writes the number of a group's slots if it differs; for Keep only if it
// does not exist.
func (s *Slots) setMax(ctx context.Context, group string, limit int) error {
	doc := s.keys.At(prefixGroup + group)
	old, err := doc.Get(ctx)
	switch {
	case err != nil && !errors.Is(err, kv.ErrDamaged):
		return err
	case old.Value.Max != nil && (limit < 0 || limit == *old.Value.Max):
		return nil
	case limit < 0:
		limit = 1
	}
	_, err = doc.CompareAndSwap(ctx, old, record{Max: &limit})
	if errors.Is(err, kv.ErrConflict) {
		return nil // a later request has set it
	}
	return err
}

// claim lines up and waits for its turn.
func (s *Slots) claim(ctx context.Context, group string, h Holder) (*kv.Lease, error) {
	c := waiter{slots: s, group: group, key: claimKey(h.Node, group, fmt.Sprintf("%08x", rand.Uint32())), reason: h.Reason}
	lease, err := s.store.Lock(ctx, prefix+c.key, kv.LeaseOptions{
		TTL: s.ttl, LockDelay: -1, Ephemeral: true, Value: record{Since: now(), Reason: h.Reason},
	})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if err := c.wait(lease); err != nil {
		_ = lease.Release(ctx) // its session ends the claim otherwise
		return nil, err
	}
	return lease, nil
}

// waiter is a claim that has lined up.
type waiter struct {
	slots      *Slots
	group, key string
	reason     string
}

// wait returns nil when the claim has its slot, or why it cannot have one; the
// cause of the lease's end when that is first.
func (w *waiter) wait(lease *kv.Lease) error {
	ctx := lease.Context()
	for {
		ahead, alone, err := w.untilTurn(ctx)
		switch {
		case err != nil, alone:
			return err
		case ahead == "":
			return persist(ctx, func() error { return w.announce(ctx, lease) })
		}
		if err := w.untilNext(ctx, ahead); err != nil {
			return err
		}
	}
}

// untilTurn watches the group until it is the claim's turn, or a claim ahead of
// it waits, whose key it then returns.
func (w *waiter) untilTurn(ctx context.Context) (ahead string, alone bool, err error) {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	_ = w.slots.keys.Watch(watch, func(u kv.TreeUpdate[record]) {
		g, failed := group{}, u.Err
		if failed == nil {
			g, failed = groupIn(u.Leaves, w.group)
		}
		if failed != nil {
			if errors.Is(failed, consul.ErrDenied) || consul.IsPermanent(failed) || errors.Is(failed, kv.ErrNewer) {
				err = failed
				stop()
			}
			return // it is tried again
		}
		switch turn, front := g.turn(w.key); turn {
		case follows:
			ahead = front.key
			stop()
		case admitted:
			ahead, alone = "", g.alone(w.key)
			stop()
		case absent, full: // the lease ends when its key is gone
		}
	}) // ends with watch
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return ahead, alone, err
}

// untilNext watches the waiting claim ahead until it holds its slot or is gone.
func (w *waiter) untilNext(ctx context.Context, ahead string) (err error) {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	_ = w.slots.keys.At(ahead).Watch(watch, func(u kv.Update[record]) {
		switch {
		case errors.Is(u.Err, consul.ErrDenied), consul.IsPermanent(u.Err):
			err = u.Err
			stop()
		case u.Err != nil: // a claim that cannot be read counts as one that waits
		case u.Entry.Session == "", u.Entry.Value.Holds:
			stop()
		}
	}) // ends with watch
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// announce writes into the claim that it holds a slot, which wakes the claim
// behind it.
func (w *waiter) announce(ctx context.Context, lease *kv.Lease) error {
	txn := lease.Txn()
	w.slots.keys.At(w.key).In(lease.Store()).SetIn(txn, record{Since: now(), Reason: w.reason, Holds: true})
	_, err := txn.Commit(ctx)
	return err
}

// Pauses between attempts while Consul does not answer.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// persist repeats op, which must be safe to repeat, while Consul does not say
// what became of it.
func persist(ctx context.Context, op func() error) error {
	pauses := concurrency.NewBackoff(firstPause, lastPause)
	for {
		err := op()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, consul.ErrUnreachable) && !errors.Is(err, consul.ErrOutcomeUnknown) && !errors.Is(err, consul.ErrRateLimited):
			return err
		}
		if pauses.Wait(ctx) != nil {
			return context.Cause(ctx)
		}
	}
}
