package rollout_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestForgiven: failures that were accepted and are fixed do not let as many
// others fail.
func TestForgiven(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 3}})
	d.Forgive = true
	d = rollout.Plan(d, changed(fleetOf(5, nil), []string{"n1", "n2"}, fail), noon).Document
	if d.Forgive || d.Forgiven != 2 || d.Stopped != nil {
		t.Fatalf("two failures are accepted: %+v", d)
	}
	d = rollout.Plan(d, changed(changed(fleetOf(5, nil), []string{"n1"}, fail), []string{"n2"}, arrive), noon).Document
	if d.Forgiven != 1 || d.Stopped != nil {
		t.Fatalf("one of them is mended: %+v", d)
	}
	d = rollout.Plan(d, changed(fleetOf(5, nil), []string{"n1", "n3"}, fail), noon).Document
	if d.Stopped == nil {
		t.Errorf("another one failed: %+v", d)
	}
}

// TestProgressWithinWindow: the time in which no host could begin does not count
// against the progress deadline; and offers carry the end of their window.
func TestProgressWithinWindow(t *testing.T) {
	t.Parallel()
	windows, err := pace.PolicyWindows("22:00-06:00")
	if err != nil {
		t.Fatal(err)
	}
	d := started(t, pace.Policy{
		MaxParallel: pace.Amount{N: 1}, ProgressDeadline: pace.Duration(time.Hour), Windows: windows,
	})
	d.Phase, d.Batch = pace.Batch, 1
	opens := noon.Add(10 * time.Hour)
	plan := rollout.Plan(d, fleetOf(3, nil), noon)
	if len(plan.Offers) > 0 || !plan.Again.Equal(opens) {
		t.Errorf("outside the window: %+v, want that it opens at %v", plan, opens)
	}
	if plan := rollout.Plan(d, fleetOf(3, nil), opens); len(plan.Offers) != 1 || !plan.Offers[0].Until.Equal(opens.Add(8*time.Hour)) {
		t.Errorf("within the window: %+v, want that it ends after eight hours", plan)
	}
	for _, test := range []struct {
		after time.Duration
		late  bool
	}{{-time.Hour, false}, {30 * time.Minute, false}, {2 * time.Hour, true}} {
		next := rollout.Plan(d, fleetOf(3, nil), opens.Add(test.after)).Document
		if late := next.Stopped != nil; late != test.late {
			t.Errorf("%v after it opened: %+v", test.after, next)
		}
	}
}

// testFailedOnly: members that run the version and whose validation failed have
// not converged, though no member is behind.
func testFailedOnly(t *testing.T, f *system) {
	f.join("m1", "m2")
	f.trigger(rollout.Request{Version: "v1"})
	f.report("v1", "m1", "m2")
	if _, err := f.ledger.SetState(t.Context(), "m2", cluster.CategoryValidation, cluster.CategoryState{State: cluster.StateFailed, Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Trigger(t.Context(), rollout.Request{Version: "v2", RequireConverged: true})
	f.wantIs("require converged", err, rollout.ErrNotConverged, "failed: m2")
	got := f.trigger(rollout.Request{Version: "v2"}).Superseded
	if got == nil || got.Count != 0 || len(got.Failed) != 1 || got.Failed[0] != "m2" {
		t.Errorf("superseded: %+v", got)
	}
}
