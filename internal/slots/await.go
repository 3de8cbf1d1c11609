package slots

import (
	"context"
	"errors"
	"sync"

	"github.com/jorc/jorc/internal/kv"
)

// await returns the index of the held key once the claim holds a slot. now is
// the group as it was last seen, with the claim in it. The error is errPlace,
// errTaken, why ctx ended, or what kept Consul from being read.
func (a *attempt) await(ctx context.Context, now Group) (index uint64, err error) {
	if now.Holds(a.name) {
		return a.check(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	own := newBell()
	helpers.Go(func() { a.watchPlace(ctx, own) })
	lookout := &lookout{group: a.group, bell: newBell(), helpers: &helpers}
	defer lookout.stop()
	for {
		place := now.Place(a.name)
		switch {
		case now.Holds(a.name):
			return a.check(ctx)
		case place >= 0:
			lookout.follow(ctx, now, place)
		case !a.outside:
			return 0, errTaken
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-own:
			if t := a.ticket.Load(); t != nil { // it is called
				now, err = a.change(ctx, unaltered)
				break
			}
			a.outside = false
			if index, err = a.granted(ctx); index != 0 || err != nil {
				return index, err
			}
			now, err = a.change(ctx, unaltered)
			if err == nil && now.Place(a.name) >= 0 {
				return 0, errPlace // the key is gone, and nobody wanted it so
			}
		case <-lookout.bell:
			now, err = a.change(ctx, a.bury(lookout))
		}
		if err != nil {
			return 0, err
		}
	}
}

// watchPlace rings when the waiter's key is not there (any more), until ctx
// ends, and notes what it holds.
func (a *attempt) watchPlace(ctx context.Context, b bell) {
	_ = a.group.wait.At(a.name).Watch(ctx, func(u kv.Update[Holding]) {
		switch {
		case errors.Is(u.Err, kv.ErrDamaged), u.Err == nil && !u.Entry.Exists:
			a.ticket.Store(nil)
			b.ring()
		case u.Err == nil:
			a.ticket.Store(&ticket{Holding: u.Entry.Value, index: u.Entry.Index})
			if u.Entry.Value.Called {
				b.ring()
			}
		}
	}) // ends with ctx
}
