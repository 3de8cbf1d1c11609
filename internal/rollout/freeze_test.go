package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestFrozenRollout: in a freeze nothing is offered, an offer is withdrawn, and the time does
// not count against the progress deadline; it is planned again when the freeze ends. Offers
// from before end when it begins. What restores, and what an operator gave a reason for,
// ignores it.
func TestFrozenRollout(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 1}, ProgressDeadline: pace.Duration(time.Hour)})
	d.Phase, d.Batch = pace.Batch, 1
	begins, ends := noon.Add(time.Minute), noon.Add(10*time.Hour)
	fleet := fleetOf(3, nil)
	fleet.Control = cluster.Control{Freezes: pace.Freezes{{ID: "a1", From: begins, To: ends, Reason: "the sale"}}}
	if plan := rollout.Plan(d, fleet, noon); len(plan.Offers) != 1 || !plan.Offers[0].Until.Equal(begins) || plan.Again.After(begins) {
		t.Errorf("before the freeze: %+v, want an offer until it begins", plan)
	}
	plan := rollout.Plan(d, fleet, begins)
	if len(plan.Offers) > 0 || !plan.Again.Equal(ends) {
		t.Errorf("in the freeze: %+v, want none until %v", plan, ends)
	}
	const text = "frozen until 2026-11-23T22:00:00Z by freeze a1: the sale"
	if waits := strings.Join(rollout.Describe(d, fleet, begins).Waits, "; "); !strings.Contains(waits, text[len("frozen until 2026-11-23T22:00:00Z"):]) || strings.Count(waits, "frozen") != 1 {
		t.Errorf("it waits for %q, want once %q", waits, text)
	}
	if got := rollout.Summarize(d, fleet, begins).Blocker; got != pace.BlockedByFreeze {
		t.Errorf("it is blocked by %q", got)
	}
	for after, late := range map[time.Duration]bool{-time.Hour: false, 30 * time.Minute: false, 2 * time.Hour: true} {
		if next := rollout.Plan(d, fleet, ends.Add(after)).Document; next.Stopped != nil != late {
			t.Errorf("%v after the freeze: %+v", after, next.Stopped)
		}
	}
	for what, change := range map[string]func(*rollout.Document){
		"a rollback":      func(d *rollout.Document) { d.RollbackOf = &rollout.Rollback{Version: "v0"} },
		"during a freeze": func(d *rollout.Document) { d.DuringFreeze = "a hole in the fence" },
	} {
		d := d
		change(&d)
		if plan := rollout.Plan(d, fleet, begins); len(plan.Offers) != 1 || !plan.Offers[0].Until.IsZero() {
			t.Errorf("%s: %+v, want an offer without an end", what, plan)
		}
	}
	gated := d
	gated.RollbackOf = &rollout.Rollback{Version: "v0", WithGates: true}
	if plan := rollout.Plan(gated, fleet, begins); len(plan.Offers) > 0 {
		t.Errorf("a rollback with gates: %+v, want no offer", plan)
	}
	fleet.Control.Freezes[0].Roles = []string{"db"}
	for i := range fleet.Members {
		fleet.Members[i].Roles = []string{[]string{"db", "web"}[min(i, 1)]}
	}
	d.Policy.MaxParallel.N = 3
	var offered []string
	for _, o := range rollout.Plan(d, fleet, begins).Offers {
		offered = append(offered, o.Node)
	}
	if slices.Contains(offered, fleet.Members[0].Node) || len(offered) != 2 {
		t.Errorf("with a freeze of a role %v are offered a grant", offered)
	}
}
