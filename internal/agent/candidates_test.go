package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// holder is the host that holds the orchestrator's lock; empty: none does.
func (f *grantFleet) holder() string {
	f.t.Helper()
	node, err := budget.Holder(f.t.Context(), f.cluster())
	if err != nil {
		f.t.Error(err)
	}
	return node
}

// presence sets the check of the agent of a host.
func (f *grantFleet) presence(node, status string) {
	f.t.Helper()
	id := catalog.PresenceID("default")
	err := f.client.CatalogRegister(f.t.Context(), &consul.CatalogRegistration{
		Node: node, Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: node, CheckID: "service:" + id, ServiceID: id, ServiceName: "jorc", Status: status}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestCandidates: with a budget no two candidates for orchestration are out of service at the
// same time, for a version or for a run, and the one that holds the orchestrator's lock goes last, when
// another holds it. Where no other candidate is up it is taken out as any other host.
func TestCandidates(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 4)
	candidates := []string{"h0", "h1", "h2"}
	var order []string // in which candidates were taken out
	for _, name := range candidates {
		h := f.hosts[name]
		h.stop()
		h.orchestrator = &config.Orchestrator{Enabled: true, Interval: time.Second}
		h.begins = func() {
			order = append(order, name)
			for _, other := range candidates {
				if f.out[other] {
					t.Errorf("%s is taken out beside %s", name, other)
				}
			}
			if f.holder() == name {
				t.Errorf("%s is taken out while it holds the orchestrator's lock", name)
			}
		}
		h.start(f.client, nil)
	}
	f.eventually("the records to name the candidates", func() error {
		s, err := f.cluster().Load(t.Context(), cluster.NeedState)
		if err != nil {
			return err
		}
		for name, h := range s.Hosts {
			if h.Record.Orchestrates != slices.Contains(candidates, name) {
				return fmt.Errorf("%s: candidate %t", name, h.Record.Orchestrates)
			}
		}
		return nil
	})
	f.eventually("an orchestrator", func() error {
		if f.holder() == "" {
			return fmt.Errorf("none")
		}
		return nil
	})
	f.budget(&pace.Budget{MaxOut: pace.Amount{N: 4}})
	// last begins a change, and wants that the holder of the lock is the last that it reaches.
	last := func(what string, begin, done func()) {
		t.Helper()
		f.mu.Lock()
		order = nil
		f.mu.Unlock()
		first := f.holder()
		begin()
		done()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(order) != 3 || order[2] != first {
			t.Errorf("%s: the candidates were taken out in the order %v; want each once, and %s, which held the lock, last", what, order, first)
		}
		if now := f.holder(); now == first {
			t.Errorf("%s: %s still holds the lock", what, now)
		}
	}
	last("a version", func() {
		f.trigger("v2", atOnce(4))
		f.atWork("v2", 2) // a candidate, and h3
	}, func() {
		f.openAll("v2")
		f.done("v2")
	})
	last("a run", func() {
		for _, h := range f.hosts {
			h.open("patch")
		}
		f.ask("p1", runs.Request{Workflow: "patch"})
	}, func() { f.wantRun("p1", "to be done", ended(runs.Done)) })

	// No other candidate is up.
	holder := f.holder()
	for _, name := range candidates {
		if name != holder {
			f.hosts[name].stop()
			f.presence(name, "critical")
		}
	}
	f.eventually("the holder to be alone", func() error {
		if node, alone := f.account().Holder(); node != holder || !alone {
			return fmt.Errorf("%q holds the lock, alone: %t", node, alone)
		}
		return nil
	})
	f.mu.Lock()
	f.hosts[holder].begins = nil
	f.mu.Unlock()
	f.openAll("v4")
	if _, err := f.rollouts().Trigger(t.Context(), rollout.Request{Version: "v4", Policy: atOnce(4)}); err != nil {
		t.Fatal(err)
	}
	f.eventually("the only candidate that is up to run v4", func() error {
		if got := f.report(holder).Version; got != "v4" {
			return fmt.Errorf("it runs %s: %s", got, f.show())
		}
		return nil
	})
	if now := f.holder(); now != holder {
		t.Errorf("%q holds the lock, want %s", now, holder)
	}
}
