package slots

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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

// bury takes the dead in front of the claim out of the group: the first of the
// queue does it with holders, the others with who waits in front of them. The
// first attempt goes by what the lookout saw, which saves two requests between
// one holder and the next; if that was too old it fails, and the others read.
func (a *attempt) bury(l *lookout) alteration {
	tried := false
	return func(ctx context.Context, now Group, c *changing) (Group, error) {
		place := now.Place(a.name)
		if place < 0 {
			return now, nil
		}
		if place > 0 {
			front := now.Queue[place-1]
			e, err := a.group.wait.At(front).Get(ctx)
			if err == nil && (!e.Exists || orphan(e)) {
				c.gone[front], c.orphans[front] = true, e.Exists
				now = now.Leave(front)
			} else if errors.Is(err, kv.ErrDamaged) {
				err = nil // its owner sees that, too
			}
			return now, err
		}
		switch {
		case l.orphaned.Load():
			return buryOrphans(ctx, now, c)
		case tried:
			return bury(ctx, now, c)
		}
		tried = true
		keys := l.keys.Load()
		if keys == nil { // it was not the first until now: follow reads them
			return now, nil
		}
		if t := a.ticket.Load(); t != nil {
			c.tickets[a.name] = *t
		}
		dead := now.Without(*keys)
		dead = dead[:min(len(dead), buryAtOnce)]
		for _, name := range dead {
			c.absent[name] = true
		}
		return now.Leave(dead...), nil
	}
}

// bury takes those holders out of the group that have no key.
func bury(ctx context.Context, now Group, c *changing) (Group, error) {
	// Names are read after the document: whoever came since is not suspected,
	// and whoever went since makes the write conflict.
	names, err := c.group.held.Names(ctx)
	if err != nil {
		return Group{}, err
	}
	dead := now.Without(names)
	for _, name := range dead {
		c.gone[name] = true
	}
	if len(dead) == 0 {
		return now, nil
	}
	return now.Leave(dead...), nil
}

// buryOrphans is bury, and takes those holders out, too, whose keys are there but
// not their sessions', as after keys were restored from a backup.
func buryOrphans(ctx context.Context, now Group, c *changing) (Group, error) {
	leaves, err := c.group.held.List(ctx)
	if err != nil {
		return Group{}, err
	}
	dead := now.Without(slices.Collect(maps.Keys(leaves)))
	for _, name := range dead {
		c.gone[name] = true
	}
	for name, leaf := range leaves {
		if orphan(leaf.Entry) && now.Holds(name) {
			dead = append(dead, name)
		}
	}
	if len(dead) == 0 {
		return now, nil
	}
	slices.Sort(dead)
	return now.Leave(dead[:min(len(dead), buryAtOnce)]...), nil
}

// orphan tells whether a claim's key is not locked by the session that the claim
// is to end with: nobody would ever delete it.
func orphan(e kv.Entry[Holding]) bool {
	return e.Value.Session != "" && e.Session != e.Value.Session
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
		if u.Err == nil && (!u.Entry.Exists || orphan(u.Entry)) || errors.Is(u.Err, kv.ErrDamaged) {
			b.ring()
		}
	}) // ends with ctx
}

// watchHolders rings when one of holders has no key, until ctx ends. Behind
// the first of the queue nobody becomes a holder, so they only get fewer.
func (l *lookout) watchHolders(ctx context.Context, holders map[string]Holding) {
	_ = l.group.held.Watch(ctx, func(u kv.TreeUpdate[Holding]) {
		if u.Err != nil {
			return
		}
		keys, orphaned := make([]string, 0, len(u.Leaves)), false
		for name, leaf := range u.Leaves {
			keys, orphaned = append(keys, name), orphaned || orphan(leaf.Entry)
		}
		l.keys.Store(&keys)
		l.orphaned.Store(orphaned)
		if orphaned || len((Group{Holders: holders}).Without(keys)) > 0 {
			l.bell.ring()
		}
	}) // ends with ctx
}

// lookout watches what is in front of a waiter: the waiter before it, or the
// holders.
type lookout struct {
	group   *group
	bell    bell
	helpers *sync.WaitGroup
	keys    atomic.Pointer[[]string] // of holders, as last seen; nil: not yet
	// orphaned: one of those keys is not locked by its holder's session.
	orphaned atomic.Bool

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
			l.watchHolders(ctx, now.Holders)
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
