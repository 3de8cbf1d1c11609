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

// recoverPatience bounds the wait for the fleet slot of a reload that a crash
// has left; it is made up for later, when the unit has its turn.
const recoverPatience = 2 * time.Second

// newSlots are the fleet slots of the agent's cluster.
func newSlots(client *consul.Client, c *config.Config) *slots.Slots {
	return slots.New(kv.New(client, storePrefix(c)), slots.Options{})
}

// slot is watch.Options.Slot.
func (a *Agent) slot(ctx context.Context, group string, limit int, reason string) (release func(), err error) {
	node, err := a.nodeName(ctx)
	if err != nil {
		return nil, fmt.Errorf("slot of %q: %w", group, err)
	}
	claim, err := a.slots.Acquire(ctx, group, limit, slots.Holder{Node: node, Reason: reason})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := claim.Release(context.WithoutCancel(ctx)); err != nil {
			a.o.Log.Warn("a fleet slot was not given back as it should be", "group", group, "for", reason, "error", err)
		}
	}, nil
}

// close gives back what the agent has in Consul and ends its connections.
func (a *Agent) close(ctx context.Context) {
	a.slots.Close(ctx)
	a.client.Close()
}
