package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// recoverSlotTimeout bounds the wait for the fleet slot of an interrupted reload. If
// the wait ends first, the reload is repeated later, when the unit gets the slot.
const recoverSlotTimeout = 2 * time.Second

// newSlots returns the fleet slots of the agent's cluster.
func newSlots(client *consul.Client, c *config.Config) *slots.Slots {
	return slots.New(kv.New(client, storePrefix(c)), slots.Options{})
}

// slot implements watch.Options.Slot.
func (a *Agent) slot(ctx context.Context, group string, limit int, reason string) (release func(), err error) {
	node, err := a.nodeName(ctx)
	if err != nil {
		return nil, fmt.Errorf("slot of %q: %w", group, err)
	}
	lease, err := a.slots.Acquire(ctx, group, limit, slots.Holder{Node: node, Reason: reason})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := lease.Release(ctx); err != nil {
			a.o.Log.Warn("cannot release slot; it ends with its session", "group", group, "reason", reason, "error", err)
		}
	}, nil
}
