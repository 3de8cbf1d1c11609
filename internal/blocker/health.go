package blocker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/consul"

	"github.com/jorc/jorc/internal/concurrency"
)

// mailbox holds the latest facts of the health API.
type mailbox struct {
	mu      sync.Mutex
	facts   healthFacts
	changed concurrency.Signal
}

func newMailbox() *mailbox { return &mailbox{changed: concurrency.NewSignal()} }

func (m *mailbox) put(change func(*healthFacts)) {
	m.mu.Lock()
	change(&m.facts)
	m.mu.Unlock()
	m.changed.Notify()
}

func (m *mailbox) take() healthFacts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts
}

// rightsTTL is how long a checked right to read stays valid: the query of a
// missing service returns at every change of the catalog.
const rightsTTL = 5 * time.Second

// watchHealth fills m until ctx ends.
func (b *Blocker) watchHealth(ctx context.Context, q ServiceQuery, m *mailbox) {
	var allowed time.Time
	_ = b.health.Watch(ctx, q, func(u HealthUpdate) { // returns only when ctx ends
		if u.Err == nil && len(u.Value) == 0 && !u.Meta.Filtered && time.Since(allowed) < rightsTTL {
			m.put(func(h *healthFacts) { h.update(u, false) })
			return
		}
		denied := b.denied(ctx, q, u)
		if u.Err == nil && !denied {
			allowed = time.Now()
		}
		if ctx.Err() == nil {
			m.put(func(h *healthFacts) { h.update(u, denied) })
		}
	})
}

// readHealth reads once.
func (b *Blocker) readHealth(ctx context.Context, q ServiceQuery) healthFacts {
	var h healthFacts
	u := b.health.Read(ctx, q)
	h.update(u, b.denied(ctx, q, u))
	return h
}

func (h *healthFacts) update(u HealthUpdate, denied bool) {
	h.denied = denied
	if u.Err != nil {
		h.err = u.Err
		return
	}
	h.take(u.Value)
	h.filtered = u.Meta.Filtered
}

// denied reports whether an answer is empty because the token lacks rights. Rights
// can be checked in the agent's own datacenter only.
func (b *Blocker) denied(ctx context.Context, q ServiceQuery, u HealthUpdate) bool {
	switch {
	case u.Err != nil:
		return errors.Is(u.Err, consul.ErrDenied)
	case len(u.Value) > 0:
		return false
	case u.Meta.Filtered:
		return true
	case q.Datacenter != "":
		return false
	}
	may, err := b.health.MayRead(ctx, q.Service)
	return err == nil && !may
}
