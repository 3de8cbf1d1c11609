package rollout

import (
	"slices"
	"time"

	"github.com/jorc/jorc/internal/pace"
)

// gateRun is what an orchestrator reads of the run that the gate asked for: it may
// be none, or behind.
func (f *simFleet) gateRun() *pace.GateRun {
	if f.doc.Gate == nil || f.doc.Gate.Run == "" {
		return nil
	}
	id := f.doc.Gate.Run
	if f.runs[id] == nil {
		f.runs[id] = &simRun{step: f.doc.Steps}
		f.note("run %s is asked", id)
		return nil
	}
	if f.random.IntN(4) == 0 {
		return nil
	}
	return &pace.GateRun{ID: id, Answer: f.runs[id].answer, Line: "error rate"}
}

// answerGate ends the run that the gate waits for.
func (f *simFleet) answerGate() {
	g := f.doc.Gate
	if g == nil || f.runs[g.Run] == nil || f.runs[g.Run].answer != pace.GateAsking {
		return
	}
	answer := pace.GateYes
	if !f.healthy && f.random.IntN(6) == 0 {
		answer = []pace.GateAnswer{pace.GateNo, pace.GateUnanswered}[f.random.IntN(2)]
	}
	f.runs[g.Run].answer = answer
	f.note("run %s answers %q", g.Run, answer)
}

// approve consents to what follows the present step.
func (f *simFleet) approve() {
	d := f.doc.promoted("ann", f.now)
	if d.Approval != nil && d.Approval.Step == d.Steps {
		f.gate().approved = true
	}
	if !d.equal(f.doc) {
		f.operate(d)
	}
}

// gate is that of the present step.
func (f *simFleet) gate() *simGate {
	if f.gates[f.doc.Steps] == nil {
		f.gates[f.doc.Steps] = &simGate{broken: f.now}
	}
	return f.gates[f.doc.Steps]
}

// checkGate holds a plan that is about to be carried out to the gates: a step begins, or
// the rollout is done, once the step before has baked and its samples have passed
// in a row, and was approved where that is asked for.
func (f *simFleet) checkGate(c seen) {
	f.t.Helper()
	d, next, g := c.doc, c.plan.Document, f.gate()
	if next.Version != d.Version || !next.Started.Equal(d.Started) { // a rollback has no gates
		f.gates = map[int]*simGate{}
		return
	}
	p := newPlanner(d, c.state, f.now)
	if !p.SettledStep() || d.Stopped != nil {
		g.broken = f.now
	}
	if !d.Policy.SameGates(g.policy) {
		g.policy, g.broken = d.Policy, f.now
	}
	begins := next.Steps > d.Steps
	if d.Steps == 0 || d.Over() || d.Phase == pace.RollingBack || !begins && next.Phase != pace.Done {
		return
	}
	if next.Steps > d.Steps+1 {
		f.fail("%d steps begin at once", next.Steps-d.Steps)
	}
	if bake := time.Duration(d.Policy.Bake); f.now.Sub(g.broken) < bake {
		f.fail("step %d is over after %v of %v", d.Steps, f.now.Sub(g.broken), bake)
	}
	if d.Policy.Gate.Workflow != "" {
		yes := 0
		for ask := d.Asks; ask > 0; ask-- { // the last samples, in a row
			at := d
			at.Asks = ask
			run := f.runs[pace.GateRunID(at.Version, at.Started, at.Steps, at.Asks)]
			if run == nil || run.step != d.Steps || run.answer != pace.GateYes {
				break
			}
			yes++
		}
		if yes < d.Policy.Gate.Samples {
			f.fail("step %d is over after %d samples of %d", d.Steps, yes, d.Policy.Gate.Samples)
		}
	}
	if d.Policy.ApproveEach && begins && !g.approved {
		f.fail("step %d was not approved", d.Steps)
	}
}

// withinStep holds an offer to the number of members that the step admits.
func (f *simFleet) withinStep(s seen, m Member) {
	f.t.Helper()
	d := s.doc
	if d.Phase != pace.Canary && d.Phase != pace.Batch || d.Phase == pace.Batch && d.Batch >= len(d.Policy.Batches) {
		return
	}
	most := max(1, d.Policy.Canary)
	p := newPlanner(d, s.state, f.now)
	if d.Phase == pace.Batch {
		most = max(1, d.Policy.Batches[d.Batch-1].Of(len(p.members)-p.counts.Held))
	}
	key := d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone)
	before := 0
	for _, o := range p.members {
		if o.in.Key.Compare(key) < 0 && o.in.Alive() && (d.Phase == pace.Batch || !o.in.Part.Silent()) {
			before++
		}
	}
	if before >= most && slices.ContainsFunc(p.members, func(o ranked) bool { return o.Node == m.Node && o.out() != pace.OutDown }) {
		f.fail("%s is offered a grant, and %d members come before it in a step of %d", m.Node, before, most)
	}
}
