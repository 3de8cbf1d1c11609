package blocker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// instance is one registered instance.
type instance struct {
	endpoint
	id, node string
	status   string // consul.HealthPassing, …
	note     string // of the check that is not passing
}

// healthFacts is the last answer of the health API.
type healthFacts struct {
	known     bool // the API has answered
	instances []instance
	filtered  bool  // ACLs hide some
	denied    bool  // the token may not read the service
	err       error // since the last answer
}

func (h *healthFacts) take(entries []*consul.ServiceEntry) {
	h.known, h.err = true, nil
	h.instances = make([]instance, 0, len(entries))
	for _, e := range entries {
		host := e.Service.Address
		if host == "" {
			host = e.Node.Address
		}
		i := instance{endpoint: normalized(host, e.Service.Port), id: e.Service.ID, node: e.Node.Node, status: e.Checks.AggregatedStatus()}
		for _, c := range e.Checks {
			if c.Status != consul.HealthPassing && i.note == "" {
				i.note = firstLine(c.Output)
			}
		}
		h.instances = append(h.instances, i)
	}
}

// usable reports whether Consul's DNS returns the instance.
func (i instance) usable() bool { return catalog.Functional.Includes(i.status) }

// count returns the number of distinct endpoints for n in the health API.
func (h healthFacts) count(n Need) int { return len(h.distinct(n)) }

func (h healthFacts) distinct(n Need) []endpoint {
	seen := map[endpoint]bool{}
	var out []endpoint
	for _, i := range h.instances {
		e := i.endpoint
		if n.Target.Name != "" && n.For != catalog.Reachable {
			e.port = 0
		}
		ok := i.usable()
		switch {
		case n.For == catalog.Addressable:
			ok = true
		case n.Passing:
			ok = i.status == consul.HealthPassing
		}
		if ok && !seen[e] {
			seen[e] = true
			out = append(out, e)
		}
	}
	return out
}

// mailbox passes facts of the health API to a follower. The next query is sent when the
// follower has processed them: if they end the wait, there is no next query to end.
type mailbox struct {
	mu      sync.Mutex
	facts   healthFacts
	changed concurrency.Signal
	handled chan struct{} // closed when the follower has processed facts
}

func newMailbox() *mailbox {
	return &mailbox{changed: concurrency.NewSignal(), handled: make(chan struct{})}
}

// put changes the facts and returns when the follower has processed them, or ctx ends.
func (m *mailbox) put(ctx context.Context, change func(*healthFacts)) {
	m.mu.Lock()
	change(&m.facts)
	handled := m.handled
	m.mu.Unlock()
	m.changed.Notify()
	select {
	case <-handled:
	case <-ctx.Done():
	}
}

// take returns the facts, and a function to call when they are processed.
func (m *mailbox) take() (facts healthFacts, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	handled := m.handled
	m.handled = make(chan struct{})
	return m.facts, func() { close(handled) }
}

// watchHealth fills m until ctx ends.
func (b *Blocker) watchHealth(ctx context.Context, q ServiceQuery, m *mailbox) {
	var allowed time.Time
	_ = b.health.Watch(ctx, q, func(u HealthUpdate) { // returns only when ctx ends
		if u.Err == nil && len(u.Value) == 0 && !u.Meta.Filtered && time.Since(allowed) < rightsTTL {
			m.put(ctx, func(h *healthFacts) { h.update(u, false) })
			return
		}
		denied := b.denied(ctx, q, u)
		if u.Err == nil && !denied {
			allowed = time.Now()
		}
		if ctx.Err() == nil {
			m.put(ctx, func(h *healthFacts) { h.update(u, denied) })
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
