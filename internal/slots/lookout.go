package slots

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jorc/jorc/internal/kv"
)

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
