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

// outForJorc are the hosts that jorc has taken out of service: for a grant, or for a turn
// of a stage.
func outForJorc(k fleettest.Keys) []string {
	nodes := k.Granted()
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
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// TestBudget: with a budget of one host a version that would begin everywhere and new
// content of a stage, at the same time, never take out two hosts, while the servers' leader
// is killed and an orchestrator dies; both reach all hosts.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := staged(t, 4, `max_parallel = "100%"`, `
static { workflow = "converge" }
workflow "converge" {
  task "switch" {
    script     = "echo {{quote .Version}} >> $DIR/converged; sleep 0.5"
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
	for i, during := range []func(){
		func() {},
		func() { s := f.Leader(); s.Kill(); s.Start() },
		func() { f.Hosts[0].Kill9All(); f.Hosts[0].Boot() },
	} {
		version, value := fmt.Sprintf("v%d", i+2), fmt.Sprintf("value-%d", i)
		f.Jorc("update", "trigger", version).OK()
		putLimit(f, value)
		during()
		f.Eventually("all hosts to have "+version+" and "+value, func(context.Context) error {
			k := f.Observer.Keys()
			for _, h := range f.Hosts {
				if v, file := versionOf(k, h.Name), strings.TrimSpace(h.File("limit")); v != version || file != value {
					return fmt.Errorf("%s has %s and %q", h.Name, v, file)
				}
			}
			if out := outForJorc(k); len(out) > 0 {
				return fmt.Errorf("%v are out of service", out)
			}
			return nil
		})
	}
	f.Eventually("the budget to be free", func(context.Context) error {
		if got := f.Jorc("cluster", "budget").OK(); !strings.Contains(got, "1 of the hosts") || !strings.Contains(got, "1 of 4 hosts, out now: 0") {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	})
}
