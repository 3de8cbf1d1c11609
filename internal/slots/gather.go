package slots

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// gather brings the document up to the keys: it takes those holders out that
// have no key any more, and lines those up who have a key and are not in it.
// Somebody who changes the group while many want to does it for all of them.
func gather(ctx context.Context, now Group, c *changing) (Group, error) {
	return c.gather(ctx, now, "")
}

// gather does not leave first out, if it has a key.
func (c *changing) gather(ctx context.Context, now Group, first string) (Group, error) {
	// Names are read after the document: whoever came since is not suspected,
	// and whoever went since makes the write conflict.
	names, err := c.group.keys.Names(ctx)
	if err != nil {
		return Group{}, err
	}
	var held, called []string
	for _, name := range names {
		if holder, ok := strings.CutPrefix(name, "held/"); ok {
			held = append(held, holder)
		} else if waiter, ok := strings.CutPrefix(name, "wait/"); ok && !now.has(waiter) {
			called = append(called, waiter)
		}
	}
	dead := now.Without(held)
	for _, name := range dead {
		c.gone[name] = true
	}
	if len(dead) > 0 {
		now = now.Leave(dead...)
	}
	if at := slices.Index(called, first); at > 0 {
		called[0], called[at] = called[at], called[0]
	}
	called = called[:min(len(called), admitAtOnce)]
	if err := c.look(ctx, called); err != nil {
		return Group{}, err
	}
	called = slices.DeleteFunc(called, func(name string) bool { return c.gone[name] })
	slices.SortFunc(called, func(a, b string) int {
		return cmp.Or(c.tickets[a].Since.Compare(c.tickets[b].Since), cmp.Compare(a, b))
	})
	for _, name := range called {
		now = now.Enter(name)
	}
	return now, nil
}
