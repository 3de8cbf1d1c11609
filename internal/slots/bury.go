package slots

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/kv"
)

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

// buried tells whether a holder was taken out because it has no key.
func (c *changing) buried(now, next Group) bool {
	for name := range now.Holders {
		if !next.Holds(name) && (c.gone[name] || c.absent[name]) {
			return true
		}
	}
	return false
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
