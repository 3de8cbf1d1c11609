package blocker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// mailbox holds the latest facts that the health API told.
type mailbox struct {
	mu      sync.Mutex
	facts   healthFacts
	changed chan struct{} // holds one signal
}

func newMailbox() *mailbox { return &mailbox{changed: make(chan struct{}, 1)} }

func (m *mailbox) put(change func(*healthFacts)) {
	m.mu.Lock()
	change(&m.facts)
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default: // the signal before it was not taken yet
	}
}

func (m *mailbox) take() healthFacts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts
}

// rightsFor is how long a right to read that was asked for is relied upon: the
// answers of a service that is not there change with the whole catalog.
const rightsFor = 5 * time.Second

// watchHealth fills m until ctx ends.
func (b *Blocker) watchHealth(ctx context.Context, q ServiceQuery, m *mailbox) {
	var allowed time.Time
	_ = b.health.Watch(ctx, q, func(u HealthUpdate) { // it returns the context's error
		if u.Err == nil && len(u.Value) == 0 && !u.Meta.Filtered && time.Since(allowed) < rightsFor {
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

// denied tells whether an answer comes from a token without rights, which
// looks like a service that nobody serves. The token's rights are those of the
// agent's own datacenter.
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
