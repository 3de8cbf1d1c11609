//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// outForJorc are the hosts that jorc has taken out of service: for a grant, for a turn of a
// stage, or for a run that disturbs.
func outForJorc(k fleettest.Keys) []string {
	nodes := append(k.Granted(), inStages(k)...)
	for name := range k {
		if node, is := strings.CutSuffix(strings.TrimPrefix(name, "host/"), "/queue"); is && len(disturbing(k, node)) > 0 {
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

// disturbing are the states of the jobs that disturb in the queue of a host.
func disturbing(k fleettest.Keys, node string) (states []string) {
	var queue struct {
		Jobs []struct {
			State    string
			Disturbs bool
		}
	}
	_ = json.Unmarshal([]byte(k["host/"+node+"/queue"].Value), &queue) // one that does not exist is empty
	for _, j := range queue.Jobs {
		if j.Disturbs {
			states = append(states, j.State)
		}
	}
	return states
}

// TestBudget: with a budget of one host a version that would begin everywhere, new content
// of a stage and a run that disturbs, at the same time, never take out two hosts, while the
// servers' leader is killed as a host is at work for each of them, and an orchestrator dies; all three
// reach all hosts. A host that an operator drained has one place of two.
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
	f.Jorc("cluster", "budget", "set", "--max-out", "1").OK()
	f.Observer.Always("at most one host is out of service for jorc", func(k fleettest.Keys) error {
		if out := outForJorc(k); len(out) > 1 {
			return fmt.Errorf("%v are", out)
		}
		return nil
	})
	drained := f.Hosts[3]
	killLeader := func() { s := f.Leader(); s.Kill(); s.Start() }
	none := func(fleettest.Keys) bool { return true }
	for i, fault := range []struct {
		name  string
		phase func(fleettest.Keys) bool // when it happens
		do    func()
		aside *fleettest.Host // it gets nothing before the others have all
	}{
		{"nothing", none, func() {}, nil},
		{"leader killed, a version at work", func(k fleettest.Keys) bool { return len(k.Granted()) > 0 }, killLeader, nil},
		{"leader killed, a stage at work", func(k fleettest.Keys) bool { return len(inStages(k)) > 0 }, killLeader, nil},
		{"leader killed, a run at work", func(k fleettest.Keys) bool {
			return slices.ContainsFunc(f.Hosts, func(h *fleettest.Host) bool { return slices.Contains(disturbing(k, h.Name), "running") })
		}, killLeader, nil},
		{"an orchestrator killed", func(k fleettest.Keys) bool { return len(outForJorc(k)) > 0 }, func() { f.Hosts[0].Kill9All(); f.Hosts[0].Boot() }, nil},
		{"a host drained", none, func() {}, drained},
	} {
		t.Log(fault.name)
		if fault.aside != nil {
			drained.Maintenance(true)
			f.Jorc("cluster", "budget", "set", "--max-out", "2").OK()
			f.Eventually("the drained host to count", func(context.Context) error {
				return containsAll(f.Jorc("cluster", "budget").OK(), "2 of 4 hosts, out now: 1")
			})
		}
		version, value, run := fmt.Sprintf("v%d", i+2), fmt.Sprintf("value-%d", i), fmt.Sprintf("patch-%d", i)
		f.WaitWritable()
		f.Jorc("update", "trigger", version).OK()
		putLimit(f, value)
		f.Jorc("cluster", "run", "patch", "--id", run).OK()
		f.Eventually("the moment for: "+fault.name, func(context.Context) error {
			if !fault.phase(f.Observer.Keys()) {
				return errors.New("it has not come")
			}
			return nil
		})
		fault.do()
		all := func(wanted func(*fleettest.Host) bool) {
			f.Eventually(fmt.Sprintf("%s: hosts to have %s, %s and %s", fault.name, version, value, run), func(context.Context) error {
				k := f.Observer.Keys()
				for _, h := range f.Hosts {
					if v, file, n := versionOf(k, h.Name), strings.TrimSpace(h.File("limit")), strings.Count(h.File("patched"), "\n"); wanted(h) && (v != version || file != value || n < i+1) {
						return fmt.Errorf("%s has %s and %q and was patched %d times", h.Name, v, file, n)
					}
				}
				if out := outForJorc(k); len(out) > 0 {
					return fmt.Errorf("%v are out of service", out)
				}
				return nil
			})
		}
		if fault.aside != nil {
			all(func(h *fleettest.Host) bool { return h != fault.aside })
			if got := drained.File("converged") + drained.File("limit"); strings.Contains(got, version) || strings.Contains(got, value) || len(disturbing(f.Observer.Keys(), drained.Name)) > 0 {
				t.Errorf("the drained host has %q", got)
			}
			f.Jorc("cluster", "budget", "set", "--max-out", "1").OK()
			drained.Maintenance(false)
		}
		all(func(*fleettest.Host) bool { return true })
	}
	f.Eventually("the budget to be free", func(context.Context) error {
		return containsAll(f.Jorc("cluster", "budget").OK(), "1 of the hosts", "1 of 4 hosts, out now: 0")
	})
	for _, h := range f.Hosts {
		if n := strings.Count(h.File("patched"), "patched"); n != 6 {
			t.Errorf("%s was patched %d times, want 6", h.Name, n)
		}
	}
}
