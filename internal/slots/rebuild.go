package slots

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/kv"
)

// present is the group as the document says; without one, as the keys say:
// somebody may have deleted it.
func (g *group) present(ctx context.Context, e kv.Entry[Group]) (Group, error) {
	if e.Exists {
		return e.Value.sound(), nil
	}
	return g.rebuild(ctx)
}

// rebuild makes the group of the keys of its claims; keys that cannot be read
// are left out. Their order is that in which they were written.
func (g *group) rebuild(ctx context.Context) (Group, error) {
	held, err := g.held.List(ctx)
	if err != nil {
		return Group{}, err
	}
	wait, err := g.wait.List(ctx)
	if err != nil {
		return Group{}, err
	}
	next := Group{Holders: map[string]Holding{}}
	for name, leaf := range held {
		if leaf.Err == nil {
			next.Holders[name] = leaf.Value.bounded()
		}
	}
	next.Queue = slices.SortedFunc(maps.Keys(wait), func(a, b string) int { return int(wait[a].Index) - int(wait[b].Index) })
	// Without a better one, a limit that lets nobody go in addition.
	if next.Max = g.limit; g.limit < 0 {
		next.Max = max(1, len(next.Holders))
	}
	return next.sound(), nil
}

// repair writes a document that can be read over one that is damaged.
func (g *group) repair(ctx context.Context) error {
	e, err := g.doc.Get(ctx)
	if !errors.Is(err, kv.ErrDamaged) {
		return err
	}
	next, err := g.rebuild(ctx)
	if err != nil {
		return err
	}
	t := g.store.Txn()
	g.doc.SwapIn(t, e, next)
	g.mark(t, next)
	_, err = t.Commit(ctx)
	if errors.Is(err, kv.ErrConflict) {
		return nil // somebody else was faster
	}
	return err
}
