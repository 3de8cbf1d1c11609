package slots

import (
	"context"
	"errors"

	"github.com/jorc/jorc/internal/kv"
)

// errWaitedFor: somebody waits for a slot of the group.
var errWaitedFor = errors.New("somebody waits")

// release gives the slot of the claim called name back. leave takes it out of
// the document; check adds to a transaction what must hold for the key to be its.
//
// While somebody waits only the claim's key is deleted, which nobody else
// writes: the first of the queue sees it, and takes all out of the document who
// went meanwhile. If each did so himself, a hundred holders that are done at one
// moment would write one document a hundred times, and fail ten times as often.
// Who empties the queue looks once more for those who left it to the queue, see
// group.change.
func (g *group) release(ctx context.Context, name string, leave alteration, check func(*kv.Txn)) error {
	_, err := g.change(ctx, func(ctx context.Context, now Group, c *changing) (Group, error) {
		if len(now.Queue) > 0 && now.Holds(name) {
			return Group{}, errWaitedFor
		}
		return leave(ctx, now, c)
	})
	if !errors.Is(err, errWaitedFor) {
		return err
	}
	left, err := g.drop(ctx, name, check)
	if !left && err == nil {
		_, err = g.change(ctx, leave)
	}
	return err
}

// drop deletes the key of a holder. left is false when nobody waits by then who
// could take it out of the document.
func (g *group) drop(ctx context.Context, name string, check func(*kv.Txn)) (left bool, err error) {
	t := g.store.Txn()
	check(t)
	r, err := t.Delete(g.held.At(name).Key()).Get(g.queued()).Commit(ctx)
	if errors.Is(err, kv.ErrConflict) {
		return true, nil // it is not the claim's any more
	}
	if err != nil {
		return false, err
	}
	return r.Index(g.queued()) != 0, nil
}
