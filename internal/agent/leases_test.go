package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/lease"
)

// asking is a call of lease.Holder.Begin that goes on.
type asking struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	status lease.Status
	err    error
}

// asks calls Begin on the host.
func (h *grantHost) asks(r lease.Request) *asking {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asking{t: h.fleet.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.status, a.err = h.simulated.Lease().Begin(ctx, r, func(lease.Status) {})
	}()
	h.fleet.t.Cleanup(func() { cancel(); <-a.done })
	return a
}

// ready waits until the caller may go ahead.
func (a *asking) ready() {
	a.t.Helper()
	<-a.done
	if a.err != nil || a.status.State != lease.Ready {
		a.t.Fatalf("%+v, %v", a.status, a.err)
	}
}

// refused waits until the caller is refused, for a reason of that kind.
func (a *asking) refused(want lease.Kind) *lease.Refusal {
	a.t.Helper()
	<-a.done
	var r *lease.Refusal
	if !errors.As(a.err, &r) || r.Kind != want {
		a.t.Fatalf("%+v, %v; want %s", a.status, a.err, want)
	}
	return r
}

// waits waits until the host's lease waits for a reason of that kind.
func (h *grantHost) waits(want lease.Kind) *lease.Refusal {
	h.fleet.t.Helper()
	var last *lease.Refusal
	h.fleet.eventually("a lease that waits for "+string(want), func() error {
		s := h.simulated.Lease().Status()
		if last = s.Waits; last == nil || last.Kind != want {
			return fmt.Errorf("%+v: %+v", s, last)
		}
		return nil
	})
	return last
}

func (h *grantHost) endLease(id string) {
	h.fleet.t.Helper()
	ctx, cancel := context.WithTimeout(h.fleet.t.Context(), time.Minute)
	defer cancel()
	if err := h.simulated.Lease().End(ctx, id); err != nil {
		h.fleet.t.Fatal(err)
	}
}

// TestLease: without a budget one host at a time has a lease. It is out of service until its lease
// ends, and then the next gets its own; nothing of it is left in reports.
func TestLease(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	if refusal := f.hosts["h0"].asks(lease.Request{ID: "a"}).refused(lease.NoOrchestrator); !refusal.Final {
		t.Errorf("%+v is to be final", refusal)
	}
	f.orchestrate("boss", nil)
	f.eventually("an orchestrator", func() error {
		if ok, err := f.rollouts().Orchestrated(t.Context()); err != nil || !ok {
			return fmt.Errorf("%v, %w", ok, err)
		}
		return nil
	})
	f.toHosts.take()
	f.hosts["h0"].asks(lease.Request{ID: "a", Reason: "a patch", Drain: 50 * time.Millisecond}).ready()
	if !slices.Equal(f.isOut(), []string{"h0"}) {
		t.Errorf("%v are out", f.isOut())
	}
	f.hosts["h0"].asks(lease.Request{ID: "b"}).refused(lease.HeldByOther)
	f.hosts["h0"].asks(lease.Request{ID: "a"}).ready() // again
	second := f.hosts["h1"].asks(lease.Request{ID: "c"})
	if why := f.hosts["h1"].waits(lease.Budget); !strings.Contains(why.Reason, "h0") || !why.Answered {
		t.Errorf("%+v does not name h0", why)
	}
	f.hosts["h2"].asks(lease.Request{ID: "d", Once: true}).refused(lease.Budget)
	f.hosts["h0"].endLease("a")
	second.ready()
	if !slices.Equal(f.isOut(), []string{"h1"}) {
		t.Errorf("%v are out", f.isOut())
	}
	f.hosts["h1"].endLease("")
	if len(f.isOut()) > 0 {
		t.Errorf("%v are out", f.isOut())
	}
	f.eventually("reports without leases", func() error {
		for name := range f.hosts {
			if d := f.report(name); d.Lease != nil || len(d.Grants) > 0 {
				return fmt.Errorf("%s: %+v %+v", name, d.Lease, d.Grants)
			}
		}
		return nil
	})
	f.neverMore(1)
	requests, writes := f.toHosts.take()
	t.Logf("2 leases and 1 wish: %d requests, %d of them writes", requests, writes)
}

// isOut are the hosts in maintenance.
func (f *grantFleet) isOut() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.out {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
