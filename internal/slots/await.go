package slots

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/jorc/jorc/internal/kv"
)

// await returns when the claim holds a slot. now is the group as it was last
// seen, with the claim in its queue. The error is errPlace, errTaken, why ctx
// ended, or what kept Consul from being read.
func (a *attempt) await(ctx context.Context, now Group) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	own, front := newBell(), newBell()
	helpers.Go(func() { a.group.watchKey(ctx, a.name, own) })
	lookout := &lookout{group: a.group, bell: front, helpers: &helpers}
	defer lookout.stop()
	for {
		if now.Holds(a.name) {
			return nil
		}
		place := now.Place(a.name)
		if place < 0 {
			return errTaken
		}
		lookout.follow(ctx, now, place)
		var err error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-own:
			now, err = a.change(ctx, unaltered)
			if err == nil && now.Place(a.name) >= 0 {
				return errPlace // the key is gone, and nobody wanted it so
			}
		case <-front:
			now, err = a.change(ctx, a.bury)
		}
		if err != nil {
			return err
		}
	}
}

// bury takes the dead out of the group: as the first of the queue holders,
// else those who wait in front.
func (a *attempt) bury(ctx context.Context, now Group, c *changing) (Group, error) {
	place := now.Place(a.name)
	if place < 0 {
		return now, nil
	}
	keys, suspects := a.group.wait, now.Queue[:place]
	if place == 0 {
		keys, suspects = a.group.held, slices.Sorted(maps.Keys(now.Holders))
	}
	// Names are read after the document: whoever came since is not suspected,
	// and whoever went since makes the write conflict.
	names, err := keys.Names(ctx)
	if err != nil {
		return Group{}, err
	}
	alive := set(names)
	var dead []string
	for _, name := range suspects {
		if !alive[name] {
			dead = append(dead, name)
			c.gone[name] = true
		}
	}
	if len(dead) == 0 {
		return now, nil
	}
	return now.Leave(dead...), nil
}

// bell is rung when there may be news; several rings before it is heard are one.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// watchKey rings when a waiter's key is not there (any more), until ctx ends.
func (g *group) watchKey(ctx context.Context, name string, b bell) {
	_ = g.wait.At(name).Watch(ctx, func(u kv.Update[Holding]) {
		if u.Err == nil && !u.Entry.Exists || errors.Is(u.Err, kv.ErrDamaged) {
			b.ring()
		}
	}) // ends with ctx
}

// watchHolders rings when one of holders has no key, until ctx ends. Behind
// the first of the queue nobody becomes a holder, so they only get fewer.
func (g *group) watchHolders(ctx context.Context, holders map[string]Holding, b bell) {
	_ = g.held.Watch(ctx, func(u kv.TreeUpdate[Holding]) {
		if u.Err != nil {
			return
		}
		for name := range holders {
			if _, ok := u.Leaves[name]; !ok {
				b.ring()
				return
			}
		}
	}) // ends with ctx
}

// lookout watches what is in front of a waiter: the waiter before it, or the
// holders.
type lookout struct {
	group   *group
	bell    bell
	helpers *sync.WaitGroup

	begun  bool
	front  string // who waits in front; empty: nobody
	cancel context.CancelFunc
}

// follow turns to what is in front of place now.
func (l *lookout) follow(ctx context.Context, now Group, place int) {
	front := ""
	if place > 0 {
		front = now.Queue[place-1]
	}
	if l.begun && front == l.front {
		return
	}
	l.stop()
	ctx, l.cancel = context.WithCancel(ctx)
	l.begun, l.front = true, front
	l.helpers.Go(func() {
		if front == "" {
			l.group.watchHolders(ctx, now.Holders, l.bell)
			return
		}
		l.group.watchKey(ctx, front, l.bell)
	})
}

func (l *lookout) stop() {
	if l.cancel != nil {
		l.cancel()
	}
}
