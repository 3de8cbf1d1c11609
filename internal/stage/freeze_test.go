package stage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
)

// TestFrozenStage: hosts that are frozen get no grant, and an offer that they did not take
// is withdrawn; the others get theirs, until the next freeze begins.
func TestFrozenStage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := stage.State{Stage: "edge", Session: "s1", Freezes: pace.Freezes{
		{ID: "a1", From: now, To: now.Add(time.Hour), Roles: []string{"db"}},
		{ID: "a2", From: now.Add(2 * time.Hour), To: now.Add(3 * time.Hour), Reason: "the sale"},
	}}
	for i, role := range []string{"db", "web", "web"} {
		s.Hosts = append(s.Hosts, stage.Host{Host: pace.Host{Node: fmt.Sprint("n", i), Up: true, Roles: []string{role}}, Report: cluster.StageReport{
			Policy: cluster.StagePolicy{MaxParallel: "100%"}, Wants: "c", Changed: cluster.StageInputsOf([]cluster.StageInput{{Name: "a", Digest: "d"}}),
		}})
	}
	plan := stage.Plan(stage.Book{}, stage.Stops{}, s, now)
	slices.Sort(plan.Offers)
	if !slices.Equal(plan.Offers, []string{"n1", "n2"}) || !offer(plan, "n1").Until.Equal(now.Add(2*time.Hour)) {
		t.Errorf("%v are offered %+v, want n1 and n2 until the next freeze", plan.Offers, plan.Grants)
	}
	for _, h := range stage.Describe(stage.Documents{Stage: "edge"}, s, true, now).Hosts {
		if want := "frozen until 2026-11-23T13:00:00Z by freeze a1 of role db"; (h.Waits == want) != (h.Node == "n0") {
			t.Errorf("%s waits because of %q; n0 alone: %q", h.Node, h.Waits, want)
		}
	}
	s.Freezes = append(s.Freezes, pace.Freeze{ID: "a3", From: now, To: now.Add(time.Minute), Roles: []string{"web"}})
	take(&s, plan)
	if next := stage.Plan(plan.Book, plan.Stops, s, now.Add(time.Second)); !slices.Equal(next.Withdrawals, []string{"n1", "n2"}) || len(next.Offers) > 0 {
		t.Errorf("with a new freeze %v are withdrawn and %v offered", next.Withdrawals, next.Offers)
	}
	for i := range s.Hosts {
		s.Hosts[i].Grants = granted(change.Grant{})
	}
	if next := stage.Plan(stage.Book{}, stage.Stops{}, s, now.Add(3*time.Hour)); len(next.Offers) != 3 || !offer(next, "n0").Until.IsZero() {
		t.Errorf("after the freezes %v are offered %+v", next.Offers, next.Grants)
	}
}

// offer is what a plan offers a host; the zero Grant: nothing.
func offer(p stage.Planned, node string) change.Grant {
	for _, n := range p.Grants {
		if n.Node == node {
			return n.Grants[0]
		}
	}
	return change.Grant{}
}

// take writes what a plan grants.
func take(s *stage.State, p stage.Planned) {
	for i := range s.Hosts {
		if g := offer(p, s.Hosts[i].Node); g.Change != "" {
			g.ID, g.Session = "1.1."+s.Session, s.Session
			s.Hosts[i].Grants = granted(g)
		}
	}
}

// TestFrozenSteps: a step of which some hosts are frozen waits for them, before its gate and before the
// next zone; one of which the others are held does not.
func TestFrozenSteps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	end := now.Add(time.Hour)
	changes := cluster.StageInputsOf([]cluster.StageInput{{Name: "a", Digest: "d"}})
	frozen := func(h *stage.Host) { h.Roles = []string{"db"} }
	held := func(h *stage.Host) { h.Hold = "by ann" }
	attempt := func(policy cluster.StagePolicy, aside func(*stage.Host)) stage.State {
		s := stage.State{Stage: "edge", Session: "s", Freezes: pace.Freezes{{ID: "a1", From: now, To: end, Roles: []string{"db"}}}}
		for i, zone := range []string{"x", "x", "y"} {
			h := stage.Host{Host: pace.Host{Node: fmt.Sprint("n", i+1), Zone: zone, Up: true}, Report: cluster.StageReport{Policy: policy, Rendered: true, Wants: "c", Changed: changes}}
			switch {
			case i == 0: // it has accepted its grant
				h.Report = cluster.StageReport{Policy: policy, Rendered: true, State: cluster.StageDone, Taken: changes}
				h.Answer = took("1.1.s", "c")
			case i == 1 || !policy.ZoneByZone:
				aside(&h)
			}
			s.Hosts = append(s.Hosts, h)
		}
		return s
	}
	zone := &stage.Step{Number: 1, Began: now, Kind: stage.StepZone, Zone: "x", Hosts: map[string]bool{"n1": true}, Inputs: changes}
	two := &stage.Step{Number: 1, Began: now, Kind: stage.StepBatch, Size: 2, Hosts: map[string]bool{"n1": true}, Inputs: changes}
	full := &stage.Step{Number: 1, Began: now, Kind: stage.StepBatch, Size: 1, Hosts: map[string]bool{"n1": true}, Inputs: changes}
	zones, gated := cluster.StagePolicy{MaxParallel: "2", ZoneByZone: true}, cluster.StagePolicy{MaxParallel: "2", ApproveEach: true}
	both := zones
	both.ApproveEach = true
	for _, test := range []struct {
		name   string
		policy cluster.StagePolicy
		step   *stage.Step
		aside  func(*stage.Host)
		gate   bool     // it begins
		offers []string // meanwhile
		after  []string // offers when the freeze has ended
	}{
		{"zones, frozen", zones, nil, frozen, false, nil, []string{"n2"}},
		{"zones, held", zones, nil, held, false, []string{"n3"}, []string{"n3"}},
		{"a zone with a gate, frozen", both, zone, frozen, false, nil, []string{"n2"}},
		{"a zone with a gate, held", both, zone, held, true, nil, nil},
		{"a step with room, frozen", gated, two, frozen, false, nil, []string{"n2"}},
		{"a step with room, held", gated, two, held, true, nil, nil},
		{"a full step, frozen", gated, full, frozen, true, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, book := attempt(test.policy, test.aside), stage.Book{Active: true, Step: test.step}
			p := stage.Plan(book, stage.Stops{}, s, now)
			if begun := p.Book.Step != nil && p.Book.Step.Gate != nil; begun != test.gate || !slices.Equal(p.Offers, test.offers) {
				t.Errorf("the gate begins: %t, offers to %v; want %t and %v", begun, p.Offers, test.gate, test.offers)
			}
			if after := stage.Plan(book, stage.Stops{}, s, end); !slices.Equal(after.Offers, test.after) {
				t.Errorf("after the freeze: offers to %v, want %v", after.Offers, test.after)
			}
		})
	}
}

// TestStageWindow: hosts get grants only while the windows of all hosts are open, and an offer
// that was not taken when it closes is withdrawn; a window that cannot be read counts as none.
func TestStageWindow(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 11, 23, hour, 0, 0, 0, time.UTC) }
	s := stage.State{Stage: "edge", Session: "s1"}
	for i, window := range []string{"10:00-14:00", "12:00-16:00; 22:00-23:00", "", "Fri"} {
		s.Hosts = append(s.Hosts, stage.Host{Host: up(fmt.Sprint("n", i)), Report: cluster.StageReport{
			Policy: cluster.StagePolicy{MaxParallel: "100%", Window: window}, Wants: "c", Changed: cluster.StageInputsOf([]cluster.StageInput{{Name: "a", Digest: "d"}}),
		}})
	}
	closed := stage.Plan(stage.Book{}, stage.Stops{}, s, at(11))
	if len(closed.Offers) > 0 || !closed.Again.Equal(at(12)) {
		t.Errorf("%v are offered, and the next plan is at %v, want %v", closed.Offers, closed.Again, at(12))
	}
	status := stage.Describe(stage.Documents{Stage: "edge"}, s, true, at(11))
	for _, h := range status.Hosts {
		if want := "outside the window until 2026-11-23T12:00:00Z"; h.Waits != want {
			t.Errorf("%s waits because of %q, want %q", h.Node, h.Waits, want)
		}
	}
	if want := 3; len(status.Windows) != want {
		t.Errorf("the windows are %q, want %d", status.Windows, want)
	}
	open := stage.Plan(stage.Book{}, stage.Stops{}, s, at(12))
	if len(open.Offers) != 4 || !offer(open, "n0").Until.Equal(at(14)) {
		t.Errorf("%v are offered %+v, want all until %v", open.Offers, open.Grants, at(14))
	}
	take(&s, open)
	late := stage.Plan(open.Book, open.Stops, s, at(14))
	if len(late.Withdrawals) != 4 || len(late.Offers) > 0 {
		t.Errorf("%v are withdrawn and %v offered", late.Withdrawals, late.Offers)
	}
}

// TestStageDuringFreeze: what waited when an operator said so is taken in a freeze; other content,
// and a host that would take other content with it, waits; it ends once no host waits for it.
func TestStageDuringFreeze(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	inputs := func(digests ...string) cluster.StageInputs {
		var list []cluster.StageInput
		for _, d := range digests {
			list = append(list, cluster.StageInput{Name: "key " + d, Digest: d})
		}
		return cluster.StageInputsOf(list)
	}
	many := inputs("a")
	many.More = 3
	s := stage.State{Stage: "edge", Session: "s1", Freezes: pace.Freezes{{ID: "f", From: now, To: now.Add(time.Hour)}, {ID: "g", From: now.Add(2 * time.Hour), To: now.Add(3 * time.Hour)}}}
	for i, changed := range []cluster.StageInputs{inputs("a"), inputs("a", "b"), inputs("b"), many, many} {
		s.Hosts = append(s.Hosts, stage.Host{Host: up(fmt.Sprint("n", i)), Report: cluster.StageReport{
			Policy: cluster.StagePolicy{MaxParallel: "100%"}, Wants: fmt.Sprint("c", i), Changed: changed,
		}})
	}
	stops := stage.Stops{Exempt: []stage.Exemption{{Exceptions: pace.Exceptions{DuringFreeze: "a hole in the fence"}, By: "ann", Inputs: inputs("a"), Contents: []string{"c3"}}}}
	plan := stage.Plan(stage.Book{}, stops, s, now)
	if slices.Sort(plan.Offers); !slices.Equal(plan.Offers, []string{"n0", "n3"}) || len(plan.Stops.Exempt) != 1 {
		t.Errorf("%v are offered, want n0 and n3; the exemptions are %+v", plan.Offers, plan.Stops.Exempt)
	}
	if attempt := offer(plan, "n0"); !attempt.DuringFreeze || !attempt.Until.IsZero() {
		t.Errorf("n0 is offered %+v: no freeze ends that", attempt)
	}
	if got := stage.Describe(stage.Documents{Stage: "edge", Stops: stops}, s, true, now).Exempt; len(got) != 1 || got[0].DuringFreeze != "a hole in the fence" {
		t.Errorf("it is shown as %+v", got)
	}
	take(&s, plan)
	if next := stage.Plan(plan.Book, plan.Stops, s, now.Add(time.Second)); len(next.Withdrawals) > 0 {
		t.Errorf("%v are withdrawn", next.Withdrawals)
	}
	for i := range s.Hosts {
		s.Hosts[i].Report.Wants, s.Hosts[i].Report.Changed = "z", inputs("z")
	}
	if next := stage.Plan(stage.Book{}, stops, s, now); len(next.Offers)+len(next.Stops.Exempt) > 0 || len(next.Withdrawals) != 2 {
		t.Errorf("other content: %v are offered, and the exemptions are %+v", next.Offers, next.Stops.Exempt)
	}
}

// TestStageAfterRestore: nothing is offered until hosts have reported after a restore, and the plan says until when.
func TestStageAfterRestore(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := stage.State{Stage: "edge", Session: "s1", Quiet: now.Add(time.Minute), Hosts: []stage.Host{{Host: up("n1"), Report: cluster.StageReport{
		Policy: cluster.StagePolicy{MaxParallel: "1"}, Wants: "c", Changed: limit("a"),
	}}}}
	if plan := stage.Plan(stage.Book{}, stage.Stops{}, s, now); len(plan.Offers) > 0 || !plan.Again.Equal(s.Quiet) {
		t.Errorf("%v are offered, and the next plan is at %v, want none before %v", plan.Offers, plan.Again, s.Quiet)
	}
	if plan := stage.Plan(stage.Book{}, stage.Stops{}, s, s.Quiet); !slices.Equal(plan.Offers, []string{"n1"}) {
		t.Errorf("then %v are offered, want n1", plan.Offers)
	}
}
