//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleettest"
	"github.com/jorc/jorc/internal/stage"
)

// TestStagedZones: a good value reaches the canary, then one zone, then the other; a bad
// one stops at the canary.
func TestStagedZones(t *testing.T) {
	t.Parallel()
	f := staged(t, 6, "max_parallel = 2\n    canary = 1\n    zone_by_zone = true")
	var mu sync.Mutex
	var order []string // of the hosts, as they take the value
	f.Observer.Always("the canary alone, then zone by zone", func(k fleettest.Keys) error {
		var open []string
		done, doneIn := 0, map[string]int{}
		for i, h := range f.Hosts {
			var report cluster.Report
			_ = json.Unmarshal([]byte(k["nodes/"+h.Name].Value), &report)
			s := report.Stages["limit"]
			if s.Open() {
				open = append(open, string(rune('a'+i%2)))
				mu.Lock()
				if !slices.Contains(order, h.Name) {
					order = append(order, h.Name)
				}
				mu.Unlock()
			}
			if s.State == cluster.StageDone && len(s.Taken.List) > 0 {
				done++
				doneIn[string(rune('a'+i%2))]++
			}
		}
		switch {
		case len(open) > 2, done == 0 && len(open) > 1:
			return fmt.Errorf("%d hosts are at work, %d are done", len(open), done)
		case slices.Contains(open, "b") && doneIn["a"] < 3:
			return fmt.Errorf("zone b is at work, %d of 3 hosts in zone a are done", doneIn["a"])
		}
		return nil
	})
	putLimit(f, "second")
	for _, h := range f.Hosts {
		f.Eventually(h.Name, func(context.Context) error {
			if got := h.File("limit"); got != "second\n" {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
	f.Eventually("the end of the change", func(context.Context) error {
		var all []stage.Status
		if err := json.Unmarshal([]byte(f.Jorc("stage", "list", "-o", "json").OK()), &all); err != nil {
			return err
		}
		if len(all) != 1 || all[0].State != stage.StateDone {
			return fmt.Errorf("got %+v", all)
		}
		return nil
	})
	mu.Lock()
	if len(order) != 6 {
		t.Errorf("%v took the value", order)
	}
	mu.Unlock()
	f.Observer.Always("the canary alone, then zone by zone", func(fleettest.Keys) error { return nil })
	most := badHosts(f)
	putLimit(f, "bad")
	bad := hasFile(f, "bad")
	f.Eventually("the old file", func(context.Context) error {
		if got := bad.File("limit"); got != "second\n" {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
	for range 3 {
		f.Jorc("cluster", "orchestrate").OK()
	}
	if n, got := most(), took(f, "bad"); n != 1 || !slices.Equal(got, []string{bad.Name}) {
		t.Errorf("%d hosts were bad at one moment, %v had the value", n, got)
	}
}
