package slots

import (
	"context"
	"fmt"

	"github.com/jorc/jorc/internal/kv"
)

// Detach ends Context and the watch over a durable claim, and leaves the claim
// where it is: it ends by Unlock, or by the Release of who acquires it again by
// its name. For other claims it is Release.
func (c *Claim) Detach(ctx context.Context) error {
	if !c.attempt.durable {
		return c.Release(ctx)
	}
	c.releasing.Lock()
	defer c.releasing.Unlock()
	c.watchNoMore()
	return nil
}

// Release gives the slot of a durable claim back by its name: with one request
// while somebody waits for it. That there is none is no error. The errors are
// those of Unlock.
func (s *Slots) Release(ctx context.Context, name, node, id string) error {
	g, err := s.group(name, Keep)
	if err != nil {
		return err
	}
	h := Holder{Node: node, ID: id}
	claim, err := h.name()
	if err != nil || id == "" {
		return g.wrap(fmt.Errorf("claim %q of node %q: %w", id, node, ErrName))
	}
	left, err := g.drop(ctx, claim, func(*kv.Txn) {})
	if !left && err == nil {
		err = g.release(ctx, claim, leave(claim), func(*kv.Txn) {})
	}
	return g.wrap(err)
}

// HeldKey is the key, below the cluster's prefix, that is there while a claim of
// node and id holds a slot of the group: for who reads it together with others.
func HeldKey(name, node, id string) string { return "slots/" + name + "/held/" + node + "/" + id }

// Held reads whether a claim of node and id holds a slot of the group, and since
// when and why, with one request whatever the size of the group. It returns
// ErrName, kv.ErrDamaged, kv.ErrNewer, consul.ErrDenied or
// consul.ErrUnreachable.
func (s *Slots) Held(ctx context.Context, name, node, id string) (Holding, bool, error) {
	g, err := s.group(name, Keep)
	if err != nil {
		return Holding{}, false, err
	}
	h := Holder{Node: node, ID: id}
	claim, err := h.name()
	if err != nil || id == "" {
		return Holding{}, false, g.wrap(fmt.Errorf("claim %q of node %q: %w", id, node, ErrName))
	}
	e, err := g.held.At(claim).Get(ctx)
	return e.Value, e.Exists && err == nil, err
}
