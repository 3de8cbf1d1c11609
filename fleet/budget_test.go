//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// outForJorc are the hosts that jorc has taken out of service: for a grant of a version or a
// stage, for a run that disturbs, or for a lease.
func outForJorc(k fleettest.Keys) []string {
	nodes := slices.Concat(k.Granted(), inStages(k), k.Leased())
	for name := range k {
		if node, is := strings.CutSuffix(strings.TrimPrefix(name, "host/"), "/grants"); is && len(disturbing(k, node)) > 0 {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// inStages are the hosts at work for a stage.
func inStages(k fleettest.Keys) (nodes []string) {
	for name, key := range k {
		node, ok := strings.CutPrefix(name, "nodes/")
		var report struct {
			Stages map[string]struct{ State string } `json:"stages"`
		}
		if !ok || json.Unmarshal([]byte(key.Value), &report) != nil {
			continue
		}
		for _, s := range report.Stages {
			if slices.Contains([]string{"changing", "settling", "restoring"}, s.State) {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// disturbing are the states of the jobs that a host is granted and that disturb it; empty: it has not begun.
func disturbing(k fleettest.Keys, node string) (states []string) {
	var granted struct {
		Grants []struct {
			Tag string
			Job struct{ Disturbs bool }
		}
	}
	var said struct {
		Jobs []struct{ Job, State string }
	}
	_ = json.Unmarshal([]byte(k["host/"+node+"/grants"].Value), &granted) // one that does not exist is empty
	_ = json.Unmarshal([]byte(k["host/"+node+"/results"].Value), &said)
	for _, g := range granted.Grants {
		if !g.Job.Disturbs {
			continue
		}
		state := ""
		for _, j := range said.Jobs {
			if j.Job == g.Tag {
				state = j.State
			}
		}
		states = append(states, state)
	}
	return states
}

// TestBudget: a version that would begin everywhere, new content of a stage and a run that disturbs, at the
// same time, never take out two hosts beside the one that an operator drained, while the servers' leader is
// killed as a host is at work for each of them, and an orchestrator dies; all three reach all other
// hosts. With a budget of one host, which the drained one uses up, nothing begins, and all three say why.
func TestBudget(t *testing.T) {
	t.Parallel()
	// No time is too short for the election of a leader, during which no health is known.
	f := staged(t, 4, `max_parallel = "100%"
    node_deadline = "60s"`, `
static { workflow = "converge" }
workflow "converge" {
  task "switch" {
    script     = "echo {{quote .Version}} >> $DIR/converged; sleep 0.5"
    idempotent = true
  }
}
workflow "patch" {
  disturbs = true
  task "patch" {
    script     = "sleep 0.3; echo patched >> $DIR/patched"
    idempotent = true
  }
}
`)
	f.Jorc("update", "trigger", "v1").OK()
	allAt(f, "v1")
	drained := f.Hosts[3]
	var allowed atomic.Int32 // beside what fell out by itself, or was taken out by an operator
	budget := func(out int, hosts, now string) {
		f.Jorc("cluster", "budget", "set", "--max-out", fmt.Sprint(out)).OK()
		f.Eventually("the budget to show who is out", func(context.Context) error {
			return containsAll(f.Jorc("cluster", "budget").OK(), hosts, "out now: "+now)
		})
	}
	allowed.Store(1)
	budget(1, "1 of 4 hosts", "0")
	f.Observer.Always("few hosts are out of service for jorc", func(k fleettest.Keys) error {
		if out := outForJorc(k); len(out) > int(allowed.Load()) {
			return fmt.Errorf("%v are", out)
		}
		return nil
	})
	f.Observer.AlwaysChecks("few hosts are in maintenance", func(checks []fleettest.Check) error {
		out := slices.DeleteFunc(fleettest.InMaintenance(checks), func(node string) bool { return node == drained.Name })
		if len(out) > 1 {
			return fmt.Errorf("%v are", out)
		}
		return nil
	})
	killLeader := func() { s := f.Leader(); s.Kill(); s.Start() }
	phases := []struct {
		name  string
		phase func(fleettest.Keys) bool // when it happens; nil: at any time
		do    func()
	}{
		{"nothing", nil, func() {}},
		{"leader killed, a version at work", func(k fleettest.Keys) bool { return len(k.Granted()) > 0 }, killLeader},
		{"leader killed, a stage at work", func(k fleettest.Keys) bool { return len(inStages(k)) > 0 }, killLeader},
		{"leader killed, a run at work", func(k fleettest.Keys) bool {
			return slices.ContainsFunc(f.Hosts, func(h *fleettest.Host) bool { return slices.Contains(disturbing(k, h.Name), "running") })
		}, killLeader},
		{"an orchestrator killed", func(k fleettest.Keys) bool { return len(outForJorc(k)) > 0 }, func() { f.Hosts[0].Kill9All(); f.Hosts[0].Boot() }},
	}
	named := func(i int) (version, value, run string) {
		return fmt.Sprintf("v%d", i+2), fmt.Sprintf("value-%d", i), fmt.Sprintf("patch-%d", i)
	}
	begin := func(i int) {
		version, value, run := named(i)
		f.WaitWritable()
		f.Jorc("update", "trigger", version).OK()
		putLimit(f, value)
		f.Jorc("cluster", "run", "patch", "--id", run).OK()
	}
	all := func(i int, what string, hosts []*fleettest.Host) {
		version, value, run := named(i)
		f.Eventually(fmt.Sprintf("%s: hosts to have %s, %s and %s", what, version, value, run), func(context.Context) error {
			k := f.Observer.Keys()
			for _, h := range hosts {
				if v, file, n := versionOf(k, h.Name), strings.TrimSpace(h.File("limit")), strings.Count(h.File("patched"), "\n"); v != version || file != value || n < i+1 {
					return fmt.Errorf("%s has %s and %q and was patched %d times", h.Name, v, file, n)
				}
			}
			if out := outForJorc(k); len(out) > 0 {
				return fmt.Errorf("%v are out of service", out)
			}
			return nil
		})
	}
	others := f.Hosts
	for i, p := range phases {
		t.Log(p.name)
		if i == 1 {
			drained.Maintenance(true)
			budget(2, "2 of 4 hosts", "1")
			others = f.Hosts[:3]
		}
		begin(i)
		f.Eventually("the moment for: "+p.name, func(context.Context) error {
			if p.phase != nil && !p.phase(f.Observer.Keys()) {
				return errors.New("it has not come")
			}
			return nil
		})
		p.do()
		all(i, p.name, others)
	}
	t.Log("the drained host uses the budget up")
	budget(1, "1 of 4 hosts", "1")
	allowed.Store(0)
	last := len(phases)
	begin(last)
	version, value, run := named(last)
	f.Eventually("all to wait for the budget", func(context.Context) error {
		const why = "the budget: 1 of 1 hosts are out of service"
		return errors.Join(
			containsAll(f.Jorc("update", "why", f.Hosts[1].Name).Stdout, why),
			containsAll(f.Jorc("stage", "show", "limit").Stdout, why),
			containsAll(f.Jorc("cluster", "runs", run).Stdout, why),
			containsAll(f.Jorc("cluster", "budget").OK(), drained.Name),
		)
	})
	orchestrated(f)
	for _, h := range f.Hosts {
		if got := h.File("converged") + h.File("limit"); strings.Contains(got, version) || strings.Contains(got, value) || strings.Count(h.File("patched"), "patched") > last {
			t.Errorf("%s got something although the drained host uses the budget up: %q", h.Name, got)
		}
	}
	if got := drained.File("converged") + drained.File("limit"); strings.Contains(got, "v3") || strings.Contains(got, "value-1") || strings.Count(drained.File("patched"), "patched") > 1 {
		t.Errorf("the drained host has %q", got)
	}
	allowed.Store(1)
	drained.Maintenance(false)
	all(last, "no host is drained", f.Hosts)
	budget(1, "1 of 4 hosts", "0")
	for _, h := range f.Hosts {
		if n := strings.Count(h.File("patched"), "patched"); n != last+1 {
			t.Errorf("%s was patched %d times, want %d", h.Name, n, last+1)
		}
	}
}
