package stage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
)

// TestFrozenStage: hosts that are frozen get no turn, and an offer that they did not take
// is withdrawn; the others get theirs, until the next freeze begins.
func TestFrozenStage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := stage.State{Stage: "edge", Session: "s1", Freezes: pace.Freezes{
		{ID: "a1", From: now, To: now.Add(time.Hour), Roles: []string{"db"}},
		{ID: "a2", From: now.Add(2 * time.Hour), To: now.Add(3 * time.Hour), Reason: "the sale"},
	}}
	for i, role := range []string{"db", "web", "web"} {
		s.Hosts = append(s.Hosts, stage.Host{Node: fmt.Sprint("n", i), Up: true, Roles: []string{role}, Report: cluster.StageReport{
			Policy: cluster.StagePolicy{MaxParallel: "100%"}, Wants: "c", Changed: cluster.StageInputsOf([]cluster.StageInput{{Name: "a", Digest: "d"}}),
		}})
	}
	plan := stage.Plan(stage.Turns{}, stage.Stops{}, s, now)
	slices.Sort(plan.Offers)
	if !slices.Equal(plan.Offers, []string{"n1", "n2"}) || !plan.Turns.Open["n1"].Until.Equal(now.Add(2*time.Hour)) {
		t.Errorf("%v are offered %+v, want n1 and n2 until the next freeze", plan.Offers, plan.Turns.Open)
	}
	for _, h := range stage.Describe(stage.Documents{Stage: "edge"}, s, true, now).Hosts {
		if want := "frozen until 2026-11-23T13:00:00Z by freeze a1 of role db"; (h.Waits == want) != (h.Node == "n0") {
			t.Errorf("%s waits because of %q; n0 alone: %q", h.Node, h.Waits, want)
		}
	}
	s.Freezes = append(s.Freezes, pace.Freeze{ID: "a3", From: now, To: now.Add(time.Minute), Roles: []string{"web"}})
	if next := stage.Plan(plan.Turns, plan.Stops, s, now.Add(time.Second)); !slices.Equal(next.Withdrawals, []string{"n1", "n2"}) || len(next.Offers) > 0 {
		t.Errorf("with a new freeze %v are withdrawn and %v offered", next.Withdrawals, next.Offers)
	}
	if next := stage.Plan(stage.Turns{}, stage.Stops{}, s, now.Add(3*time.Hour)); len(next.Offers) != 3 || !next.Turns.Open["n0"].Until.IsZero() {
		t.Errorf("after the freezes %v are offered %+v", next.Offers, next.Turns.Open)
	}
}
