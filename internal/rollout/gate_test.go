package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// gated is a rollout with gates on its way: its members, its time, and what is known of its runs.
type gated struct {
	t         *testing.T
	d         rollout.Document
	v         rollout.State
	now       time.Time
	decisions []pace.Decision
}

// newGated is a rollout of four members in two batches; the first is done.
func newGated(t *testing.T, set func(*pace.Policy)) *gated {
	t.Helper()
	p := pace.Policy{Batches: amounts(t, "1,100%"), MaxParallel: pace.Amount{N: 4}}
	set(&p)
	g := &gated{t: t, d: started(t, p), v: fleetOf(4, nil), now: noon}
	g.plan()
	g.v = changed(g.v, admitted(g.d, g.v), arrive)
	g.plan()
	return g
}

// plan plans until the document stays.
func (g *gated) plan() {
	p, decisions := planned(g.d, g.v, g.now)
	g.d, g.decisions = p.Document, append(g.decisions, decisions...)
}

// after lets time pass and plans.
func (g *gated) after(d time.Duration) {
	g.now = g.now.Add(d)
	g.plan()
}

// answer is what the run that is asked now comes to.
func (g *gated) answer(a pace.GateAnswer, line string) {
	g.t.Helper()
	if g.d.Gate == nil || g.d.Gate.Run == "" {
		g.t.Fatalf("no run is asked: %+v", g.d.Gate)
	}
	g.v.Gate = &pace.GateRun{ID: g.d.Gate.Run, Answer: a, Line: line}
	g.plan()
}

func (g *gated) want(state string, waits ...string) {
	g.t.Helper()
	s := rollout.Describe(g.d, g.v, g.now)
	if got := g.d.StateText(); got != state {
		g.t.Fatalf("the rollout is %q, want %q; it waits for %q", got, state, s.Waits)
	}
	for _, w := range waits {
		if all := strings.Join(s.Waits, "; "); !strings.Contains(all, w) {
			g.t.Errorf("it waits for %q, want %q", all, w)
		}
	}
}

func (g *gated) wantDecided(kinds ...string) {
	g.t.Helper()
	var got []string
	for _, d := range g.decisions {
		got = append(got, d.Kind)
	}
	if !slices.Equal(got, kinds) {
		g.t.Errorf("decided %q, want %q", got, kinds)
	}
}

func bake(p *pace.Policy) { p.Bake = pace.Duration(5 * time.Minute) }

func ask(p *pace.Policy) {
	p.Gate = pace.Gate{Workflow: "slo", Samples: 2, Interval: pace.Duration(time.Minute), Timeout: pace.Duration(10 * time.Minute)}
}

// TestBake: a step that is done must stay so, to the millisecond, before the next begins,
// and the last one before the rollout is done.
func TestBake(t *testing.T) {
	t.Parallel()
	g := newGated(t, bake)
	g.want("batch 1 of 2", "batch 1 of 2 to bake until 2026")
	if s := rollout.Summarize(g.d, g.v, g.now); s.Blocker != pace.BlockedByBake {
		t.Errorf("it is blocked by %q", s.Blocker)
	}
	if again := rollout.Plan(g.d, g.v, g.now).Again; !again.Equal(noon.Add(5 * time.Minute)) {
		t.Errorf("it plans again at %v", again)
	}
	g.after(5*time.Minute - time.Millisecond)
	g.want("batch 1 of 2")
	g.after(time.Millisecond)
	g.want("batch 2 of 2")
	g.v = changed(g.v, admitted(g.d, g.v), arrive)
	g.after(time.Minute)
	g.want("batch 2 of 2", "batch 2 of 2 to bake")
	g.after(5 * time.Minute)
	g.want("done")
	g.wantDecided(event.ChangeStepBegan, event.ChangeStepDone, event.ChangeGatePassed, event.ChangeStepBegan,
		event.ChangeStepDone, event.ChangeGatePassed, event.ChangeDone)
}

// TestBakeFails: an arrived member that fails or has a critical check while its step bakes is a
// failure like any other; one that is down holds the step.
func TestBakeFails(t *testing.T) {
	t.Parallel()
	critical := func(m *rollout.Member) { set(m, true, true) }
	arrived := func(g *gated) []string { return admitted(g.d, g.v) }
	g := newGated(t, bake)
	first := arrived(g)
	g.v = changed(g.v, first, critical)
	g.after(time.Minute)
	g.want("paused in phase batch 1 of 2")
	if !strings.Contains(g.d.Stopped.Reason, first[0]+": a check is critical while its step bakes") {
		t.Errorf("it is paused: %s", g.d.Stopped.Reason)
	}
	g.d = rollout.Resumed(g.d, g.now)
	g.plan()
	g.want("batch 1 of 2") // what failed is accepted, and it bakes again
	g.after(4*time.Minute + 59*time.Second)
	g.want("batch 1 of 2")
	g.after(time.Second)
	g.want("batch 2 of 2")

	g = newGated(t, func(p *pace.Policy) { bake(p); p.OnFailure = pace.OnFailureRollback })
	g.v = changed(g.v, arrived(g), critical)
	g.after(time.Minute)
	if g.d.Version != "v1" || g.d.RollbackOf == nil || g.d.Gate != nil {
		t.Errorf("it is not rolled back: %+v", g.d)
	}

	g = newGated(t, bake)
	first = arrived(g)
	down := g.now
	g.v = changed(g.v, first, func(m *rollout.Member) { set(m, false, false); m.DownSince = down })
	g.after(5 * time.Minute)
	g.want("batch 1 of 2", first[0]+" to be up again")
	g.after(time.Second)
	g.want("paused in phase batch 1 of 2")

	g = newGated(t, bake)
	g.after(5 * time.Minute)
	g.want("batch 2 of 2")
	g.v = changed(g.v, first, critical) // outside a bake it is out of service, and no failure
	g.plan()
	g.want("batch 2 of 2")
}

// TestGateBeginsAnew: a member that begins within a step that is done, and a change of the
// gates' policy, begin its gate again.
func TestGateBeginsAnew(t *testing.T) {
	t.Parallel()
	g := newGated(t, func(p *pace.Policy) { bake(p); p.Batches, p.Canary = nil, 3 })
	g.d.Promoted = true
	g.plan()
	g.v = changed(g.v, admitted(g.d, g.v), arrive)
	g.plan()
	first := admitted(g.d, g.v)[0]
	g.after(4 * time.Minute)
	g.v = changed(g.v, []string{first}, func(m *rollout.Member) { m.Version = "v0" })
	g.plan()
	if g.d.Gate != nil {
		t.Errorf("%s begins again, and the gate is %+v", first, g.d.Gate)
	}
	g.v = changed(g.v, []string{first}, arrive)
	g.after(2 * time.Minute)
	g.want("canary", "canary to bake until")
	g.after(4 * time.Minute)
	g.want("canary")
	g.after(time.Minute)
	g.want("batch 1 of 1")
}

// TestGateAsked: the gate's workflow is asked once for each sample, its run named by the document; two
// that pass in a row let the next step begin.
func TestGateAsked(t *testing.T) {
	t.Parallel()
	g := newGated(t, ask)
	run := g.d.Gate.Run
	g.want("batch 1 of 2", `gate "slo" after batch 1 of 2, 0 of 2 samples passed, run `+run)
	if s := rollout.Summarize(g.d, g.v, g.now); s.Blocker != pace.BlockedByGate {
		t.Errorf("it is blocked by %q", s.Blocker)
	}
	f := rollout.FactsOfGate(g.d, g.v, g.now)
	if f.Version != "v2" || f.Previous != "v1" || f.Step != "batch 1 of 2" || f.Sample != 1 || f.Count != 1 || !slices.Equal(f.Hosts, admitted(g.d, g.v)) {
		t.Errorf("its facts are %+v", f)
	}
	g.answer(pace.GateAsking, "not yet: 3 minutes")
	g.want("batch 1 of 2", "not yet: 3 minutes")
	g.answer(pace.GateYes, "0 errors")
	g.want("batch 1 of 2", "1 of 2 samples passed, asked again at ", "0 errors")
	g.after(time.Minute)
	if g.d.Gate.Run == run || g.d.Gate.Run == "" {
		t.Fatalf("the second sample is run %q", g.d.Gate.Run)
	}
	g.answer(pace.GateYes, "still 0 errors")
	g.want("batch 2 of 2")
	if p := g.d.PassedGate; p == nil || p.Answer != "still 0 errors" || p.Step != "batch 1 of 2" {
		t.Errorf("the passed gate is %+v", p)
	}
}

// TestGateFails: a gate that says no counts as failures do; one that cannot be asked, or
// does not answer in time, pauses and never promotes or takes back.
func TestGateFails(t *testing.T) {
	t.Parallel()
	back := func(p *pace.Policy) { ask(p); p.OnFailure = pace.OnFailureRollback }
	for name, test := range map[string]struct {
		policy func(*pace.Policy)
		do     func(*gated)
		state  string
		reason string
	}{
		"no":            {ask, func(g *gated) { g.answer(pace.GateNo, "7 % errors") }, "paused in phase batch 1 of 2", `gate "slo" of batch 1 of 2 failed: 7 % errors (run gate-v2-`},
		"no, back":      {back, func(g *gated) { g.answer(pace.GateNo, "7 % errors") }, "rolling back", ""},
		"second":        {ask, func(g *gated) { g.answer(pace.GateYes, ""); g.after(time.Minute); g.answer(pace.GateNo, "late") }, "paused in phase batch 1 of 2", "failed: late"},
		"unanswered":    {back, func(g *gated) { g.answer(pace.GateUnanswered, "no such workflow") }, "paused in phase batch 1 of 2", "cannot be asked: no such workflow"},
		"late":          {back, func(g *gated) { g.after(10 * time.Minute) }, "paused in phase batch 1 of 2", "cannot be asked: it did not answer for 10m0s"},
		"not yet, late": {back, func(g *gated) { g.answer(pace.GateAsking, "traffic is low"); g.after(10 * time.Minute) }, "paused in phase batch 1 of 2", "for 10m0s: traffic is low"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t, test.policy)
			run := g.d.Gate.Run
			test.do(g)
			g.want(test.state)
			if test.reason == "" {
				if g.d.RollbackOf == nil || !strings.Contains(g.d.RollbackOf.Reason, "7 % errors") {
					t.Errorf("it is rolled back: %+v", g.d.RollbackOf)
				}
				return
			}
			if !strings.Contains(g.d.Stopped.Reason, test.reason) || g.d.Gate.Run != "" {
				t.Errorf("it is paused: %s; its gate is %+v", g.d.Stopped.Reason, g.d.Gate)
			}
			g.d = rollout.Resumed(g.d, g.now)
			g.plan()
			g.want("batch 1 of 2")
			if g.d.Gate.Run == "" || g.d.Gate.Run == run {
				t.Errorf("after a resume run %q is asked", g.d.Gate.Run)
			}
		})
	}
}

// TestGateHalted: while the whole cluster is paused nothing is asked.
func TestGateHalted(t *testing.T) {
	t.Parallel()
	g := newGated(t, func(p *pace.Policy) { bake(p); ask(p) })
	g.v.Halted = "the cluster is paused"
	g.after(5 * time.Minute)
	if g.d.Gate == nil || !g.d.Gate.Baked || g.d.Gate.Run != "" {
		t.Errorf("the gate is %+v", g.d.Gate)
	}
	g.v.Halted = ""
	g.plan()
	if g.d.Gate.Run == "" {
		t.Error("nothing is asked")
	}
}

// TestApproveEach: each step but the last waits for an operator, whose name stays.
func TestApproveEach(t *testing.T) {
	t.Parallel()
	g := newGated(t, func(p *pace.Policy) { p.ApproveEach, p.Batches = true, amounts(t, "1,2,100%") })
	g.want("batch 1 of 3", "'jorc update promote'")
	if s := rollout.Summarize(g.d, g.v, g.now); s.Blocker != pace.BlockedByPromotion {
		t.Errorf("it is blocked by %q", s.Blocker)
	}
	g.after(time.Hour)
	g.want("batch 1 of 3")
	g.d = rollout.Promoted(g.d, "ann", g.now)
	g.plan()
	g.want("batch 2 of 3")
	if p := g.d.PassedGate; p == nil || p.By != "ann" || p.Step != "batch 1 of 3" {
		t.Errorf("the passed gate is %+v", p)
	}
	g.v = changed(g.v, admitted(g.d, g.v), arrive)
	g.after(time.Hour)
	g.want("batch 2 of 3", "'jorc update promote'")
	g.d = rollout.Promoted(g.d, "bob", g.now)
	g.plan()
	g.want("batch 3 of 3")
	g.v = changed(g.v, admitted(g.d, g.v), arrive)
	g.plan()
	g.want("done")
}

// TestGatePolicy: what cannot be a gate is refused, and what is left open completed.
func TestGatePolicy(t *testing.T) {
	t.Parallel()
	for _, p := range []pace.Policy{
		{Bake: -1},
		{Gate: pace.Gate{Samples: 2}},
		{Gate: pace.Gate{Workflow: "a b"}},
		{Gate: pace.Gate{Workflow: "slo", Samples: -1}},
		{Gate: pace.Gate{Workflow: "slo", Timeout: -1}},
	} {
		if p.Validate() == nil {
			t.Errorf("%+v is valid", p)
		}
	}
	p := pace.Policy{Gate: pace.Gate{Workflow: "slo"}}.Complete()
	if p.Gate.Samples != 1 || p.Gate.Timeout != pace.Duration(time.Hour) || p.MaxParallel.N == 0 || p.Validate() != nil {
		t.Errorf("it is completed to %+v", p)
	}
}

// TestGateDeadline: time in a gate does not count as time without progress, nor does it later.
func TestGateDeadline(t *testing.T) {
	t.Parallel()
	g := newGated(t, func(p *pace.Policy) {
		bake(p)
		p.Bake, p.ProgressDeadline, p.Order = pace.Duration(time.Hour), pace.Duration(10*time.Minute), []pace.Role{{Name: "worker"}}
	})
	g.after(30 * time.Minute)
	g.want("batch 1 of 2")
	g.after(30 * time.Minute)
	g.want("batch 2 of 2")
	g.after(time.Minute)
	g.want("batch 2 of 2")
	g.after(10 * time.Minute)
	g.want("paused in phase batch 2 of 2")
}
