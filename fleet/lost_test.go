//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// lostMembers: who is cut off, or dies, while it runs something is lost, and
// what it brings when it is back counts. What ran where the orchestrator was
// continues elsewhere, at the task that was not finished.
func lostMembers(t *testing.T, f *fleettest.Fleet) {
	f.Jorc("cluster", "run", "campaign", "--id", "campaign", "--on-manager").OK()
	old := campaigning(f, "first\nsecond\n", f.Hosts)
	if o := orchestrator(t, f); o != old {
		t.Errorf("%s runs the campaign, want the orchestrator %s", old.Name, o.Name)
	}
	cut, dead := f.Host("web-1"), f.Host("web-3")
	f.Jorc("cluster", "run", "long", "--id", "lost", "--filter", `Node == "web-1" or Node == "web-3"`).OK()
	f.Eventually("both to be at work", func(context.Context) error { return working([]*fleettest.Host{cut, dead}) })

	old.Kill9All()
	f.Eventually("another to orchestrate", func(context.Context) error {
		if now := orchestrator(t, f); now == old {
			return fmt.Errorf("%s still does", now.Name)
		}
		return nil
	})
	f.CutOff(cut.Machine)
	dead.Kill9All()
	r := f.Jorc("cluster", "wait", "--for", "run=lost", "--timeout", "170s")
	if r.Code != 1 || !strings.Contains(r.Stderr, cut.Name+": lost: ") || !strings.Contains(r.Stderr, dead.Name+": lost: ") {
		t.Fatalf("cluster wait exited %d, want 1 and both named: %s", r.Code, r.Stderr)
	}

	next := campaigning(f, "second\n", f.Others(old))
	for _, h := range []*fleettest.Host{old, next} {
		h.Write("go", "")
	}
	up := slices.DeleteFunc(f.Others(old), func(h *fleettest.Host) bool { return h == cut || h == dead })
	before := map[string]int{}
	for _, h := range f.Hosts {
		before[h.Name] = len(holds(t, h, "installed"))
	}
	f.Jorc("cluster", "wait", "--for", "run=campaign", "--timeout", "2m").OK()
	for _, h := range f.Hosts {
		want := before[h.Name]
		if slices.Contains(up, h) {
			want++
		}
		if got := len(holds(t, h, "installed")); got != want {
			t.Errorf("%s has installed %d times, want %d: %v are up", h.Name, got, want, names(up))
		}
	}

	for _, h := range []*fleettest.Host{cut, dead} {
		h.Write("finish", "")
	}
	old.Boot()
	dead.Boot()
	f.Eventually(cut.Name+" to finish while it is cut off", func(context.Context) error {
		if got := cut.File("long"); got != "begin\nend\n" {
			return fmt.Errorf("it has noted %q", got)
		}
		return nil
	})
	f.Heal()
	f.Eventually("the results of the lost to be taken", func(context.Context) error { return cameBack(t, f, "lost", cut, dead) })
	healthy(t, f)
	if got := old.File("campaign"); got != "first\nsecond\n" {
		t.Errorf("%s, which lost the campaign, has noted %q", old.Name, got)
	}
	if got := next.File("campaign"); got != "second\nthird\n" {
		t.Errorf("%s, which took it over, has noted %q", next.Name, got)
	}
}

// campaigning waits until one of hosts has noted just that of a campaign, and
// returns it.
func campaigning(f *fleettest.Fleet, notes string, hosts []*fleettest.Host) *fleettest.Host {
	var at *fleettest.Host
	f.Eventually(fmt.Sprintf("a campaign to come to %q", notes), func(context.Context) error {
		for _, h := range hosts {
			if h.File("campaign") == notes {
				at = h
				return nil
			}
		}
		return fmt.Errorf("it has not: %s", f.Jorc("cluster", "runs", "campaign").Stdout)
	})
	return at
}

// cameBack returns an error unless a run is done, and each of hosts was lost
// before.
func cameBack(t *testing.T, f *fleettest.Fleet, id string, hosts ...*fleettest.Host) error {
	t.Helper()
	var run struct {
		State   string `json:"state"`
		Members []struct {
			Node    string `json:"node"`
			State   string `json:"state"`
			History []struct {
				State string `json:"state"`
			} `json:"history"`
		} `json:"members"`
	}
	out := f.Jorc("cluster", "runs", id, "-o", "json").OK()
	if err := json.Unmarshal([]byte(out), &run); err != nil {
		t.Fatalf("cluster runs printed %s: %v", out, err)
	}
	if run.State != "done" || len(run.Members) != len(hosts) {
		return fmt.Errorf("it is %+v", run)
	}
	for _, m := range run.Members {
		var states []string
		for _, change := range m.History {
			states = append(states, change.State)
		}
		if m.State != "done" || !slices.Contains(states, "lost") {
			return fmt.Errorf("%s went through %v", m.Node, states)
		}
	}
	return nil
}
