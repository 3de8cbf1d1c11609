// Package leasetest has a host's lease in memory, for tests of what asks for one.
package leasetest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/lease"
)

// Holder is a lease.Holder in memory. The zero Holder gives each request its place at once, on a healthy
// host.
type Holder struct {
	mu       sync.Mutex
	changed  chan struct{} // closed at each change
	status   lease.Status
	waits    *lease.Refusal
	sick     string
	requests []lease.Request
	open     int // calls of Begin that have not returned
}

// Refuse has requests wait for r, or refuses them if it is final; nil: they get their places.
func (h *Holder) Refuse(r *lease.Refusal) { h.change(func() { h.waits = r }) }

// Sicken says which check of the host does not pass; empty: all pass.
func (h *Holder) Sicken(check string) { h.change(func() { h.sick = check }) }

// Requests are all requests so far.
func (h *Holder) Requests() []lease.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// Open is how many calls of Begin wait.
func (h *Holder) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Status implements lease.Holder.
func (h *Holder) Status() lease.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

func (h *Holder) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// next is what changes next; the caller holds the lock.
func (h *Holder) next() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// set makes now the lease if it is still that of r.
func (h *Holder) set(r lease.Request, now lease.Status) {
	h.change(func() {
		if h.status.ID == r.ID || h.status.State == lease.None {
			h.status = now
		}
	})
}

// Begin implements lease.Holder.
func (h *Holder) Begin(ctx context.Context, r lease.Request, told func(lease.Status)) (lease.Status, error) {
	if err := r.Check(); err != nil {
		return lease.Status{}, err
	}
	h.change(func() { h.requests, h.open = append(h.requests, r), h.open+1 })
	defer h.change(func() { h.open-- })
	for {
		h.mu.Lock()
		now, waits, changed := h.status, h.waits, h.next()
		h.mu.Unlock()
		switch {
		case now.State != lease.None && now.ID != r.ID:
			waits = &lease.Refusal{Kind: lease.HeldByOther, Reason: "this host is out of service for " + now.ID}
		case now.State == lease.Ready:
			told(now)
			return h.stay(ctx, r, now)
		case waits == nil:
			return h.drain(ctx, r, told)
		}
		refused := *waits
		if deadline, ok := ctx.Deadline(); ok && !refused.At.IsZero() && refused.At.After(deadline) {
			refused.Final = true
		}
		if refused.Final {
			return lease.Status{}, &refused
		}
		asked := lease.Status{State: lease.Asked, ID: r.ID, Reason: r.Reason, Waits: &refused}
		told(asked)
		select {
		case <-changed:
		case <-ctx.Done():
			return lease.Status{}, &refused
		}
	}
}

// drain gives r its place.
func (h *Holder) drain(ctx context.Context, r lease.Request, told func(lease.Status)) (lease.Status, error) {
	until := time.Now().Add(cmp.Or(r.For, lease.DefaultFor)).Truncate(time.Second).UTC()
	draining := lease.Status{State: lease.Draining, ID: r.ID, Reason: r.Reason, Until: until}
	h.set(r, draining)
	told(draining)
	select {
	case <-time.After(r.Drain):
	case <-ctx.Done():
		if r.Keep == 0 {
			h.set(r, lease.Status{})
		}
		return lease.Status{}, &lease.Refusal{Kind: lease.Waiting, Reason: "this host drains"}
	}
	ready := draining
	ready.State = lease.Ready
	h.set(r, ready)
	told(ready)
	return h.stay(ctx, r, ready)
}

// stay returns when a connected caller leaves, or its lease ends.
func (h *Holder) stay(ctx context.Context, r lease.Request, ready lease.Status) (lease.Status, error) {
	for r.Connected {
		h.mu.Lock()
		now, changed := h.status, h.next()
		h.mu.Unlock()
		if now.ID != r.ID {
			return now, &lease.Refusal{Kind: lease.Waiting, Reason: "the lease has ended", Final: true}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ready, ctx.Err()
		}
	}
	return ready, nil
}

// End implements lease.Holder.
func (h *Holder) End(ctx context.Context, id string) error {
	for {
		h.mu.Lock()
		now, sick, changed := h.status, h.sick, h.next()
		h.mu.Unlock()
		switch {
		case now.State == lease.None:
			return nil
		case id != "" && now.ID != id:
			return &lease.Refusal{Kind: lease.HeldByOther, Reason: "this host is out of service for " + now.ID}
		case sick == "":
			h.change(func() { h.status = lease.Status{} })
			return nil
		}
		refused := &lease.Refusal{Kind: lease.NotHealthy, Reason: sick}
		if now.State != lease.Ending {
			now.State, now.Waits = lease.Ending, refused
			h.change(func() { h.status = now })
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return refused
		}
	}
}
