//go:build fleet

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestLeasesInABudget: a version with a policy, new content of a stage, a run that disturbs and leases of three hosts, a
// candidate for orchestration among them, begin at the same time within a budget of two hosts, while the servers' leader is
// killed as a host is at work for each of them. No third host is ever out of service, and at the end all hosts have all of
// it, once.
func TestLeasesInABudget(t *testing.T) {
	t.Parallel()
	const work = `while [ ! -e $DIR/go-%[1]s ]; do sleep 0.05; done; echo %[1]s >> $DIR/did-%[1]s`
	f := staged(t, 6, `max_parallel = "100%"
    node_deadline = "60s"`, fmt.Sprintf(`
static { workflow = "converge" }
workflow "converge" {
  task "switch" {
    script     = "%s"
    timeout    = "5m"
    idempotent = true
  }
}
workflow "patch" {
  disturbs = true
  task "patch" {
    script     = "%s"
    timeout    = "5m"
    idempotent = true
  }
}
`, fmt.Sprintf(work, "version"), fmt.Sprintf(work, "run")))
	open := func(gate string) {
		for _, h := range f.Hosts {
			h.Write("go-"+gate, "")
		}
	}
	did := func(h *fleettest.Host, what string) int { return strings.Count(h.File("did-"+what), "\n") }
	open("version")
	f.Jorc("update", "trigger", "v1").OK()
	allAt(f, "v1")
	for _, h := range f.Hosts {
		h.Remove("go-version")
	}
	f.Jorc("cluster", "budget", "set", "--max-out", "2").OK()
	f.Observer.Always("two hosts are out of service for jorc", func(k fleettest.Keys) error {
		if out := outForJorc(k); len(out) > 2 {
			return fmt.Errorf("%v are", out)
		}
		return nil
	})
	f.Observer.AlwaysChecks("two hosts are in maintenance", fleettest.FewInMaintenance(2))

	lessees := []*fleettest.Host{f.Hosts[0], f.Hosts[3], f.Hosts[4]}
	var leases []chan fleettest.Result
	for _, h := range lessees {
		h.Write("lease.sh", fmt.Sprintf(work, "lease"))
		leases = append(leases, inBackground(h, "maintenance", "run", "--", "/bin/sh", h.Path("lease.sh")))
	}
	f.Jorc("update", "trigger", "v2", "--batches", "1,100%", "--max-parallel", "2").OK()
	putLimit(f, "second")
	f.Jorc("cluster", "run", "patch", "--id", "patch").OK()

	type phase struct {
		name string
		is   func(fleettest.Keys) bool
		gate string // opened after it
	}
	phases := []phase{
		{"a version", func(k fleettest.Keys) bool { return len(k.Granted()) > 0 }, "version"},
		{"a stage", func(k fleettest.Keys) bool { return len(inStages(k)) > 0 }, ""},
		{"a run", func(k fleettest.Keys) bool {
			return slices.ContainsFunc(f.Hosts, func(h *fleettest.Host) bool { return slices.Contains(disturbing(k, h.Name), "running") })
		}, "run"},
		{"a lease", func(k fleettest.Keys) bool { return len(k.Leased()) > 0 }, "lease"},
		{"a lease that ends", func(k fleettest.Keys) bool {
			return slices.ContainsFunc(lessees, func(h *fleettest.Host) bool { return did(h, "lease") > 0 && slices.Contains(k.Leased(), h.Name) })
		}, ""},
	}
	for len(phases) > 0 {
		var now phase
		f.Eventually("one of the phases", func(context.Context) error {
			k := f.Observer.Keys()
			i := slices.IndexFunc(phases, func(p phase) bool { return p.is(k) })
			if i < 0 {
				return errors.New("none of them has come")
			}
			now = phases[i]
			phases = slices.Delete(phases, i, i+1)
			return nil
		})
		t.Log("the servers' leader is killed, at work: " + now.name)
		s := f.Leader()
		s.Kill()
		s.Start()
		if now.gate != "" {
			open(now.gate)
		}
	}
	for _, lease := range leases {
		(<-lease).OK()
	}
	f.Eventually("all hosts to have all of it", func(context.Context) error {
		k := f.Observer.Keys()
		for _, h := range f.Hosts {
			if v, file, n := versionOf(k, h.Name), strings.TrimSpace(h.File("limit")), did(h, "run"); v != "v2" || file != "second" || n < 1 {
				return fmt.Errorf("%s has %s and %q, and was patched %d times", h.Name, v, file, n)
			}
		}
		if out := outForJorc(k); len(out) > 0 {
			return fmt.Errorf("%v are out of service", out)
		}
		return nil
	})
	waitExit(t, f, 0)
	f.Jorc("cluster", "wait", "--for", "run=patch", "--timeout", "2m").OK()
	for _, h := range f.Hosts {
		want := map[string]int{"version": 2, "run": 1, "lease": 0}
		if slices.Contains(lessees, h) {
			want["lease"] = 1
		}
		for what, n := range want {
			if got := did(h, what); got != n {
				t.Errorf("%s did its %s %d times, want %d", h.Name, what, got, n)
			}
		}
	}
}
