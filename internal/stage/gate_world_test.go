package stage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/raced"
	"github.com/jorc/jorc/internal/stage"
)

// gates is what a world knows of the gates of its stage beside the documents.
type gates struct {
	bake    time.Duration
	samples int
	approve bool
	runs    []*gateRun
	work    time.Time // when a host was last offered a grant, or had one
	taken   map[string]map[string]bool
	consent map[string]bool // steps that are approved
}

type gateRun struct {
	id, step string
	answer   pace.GateAnswer
}

func stepKey(s *stage.Step) string { return fmt.Sprint(s.Number, " of ", s.Began) }

// addGates gives most worlds gates.
func (w *world) addGates() {
	w.gates = gates{taken: map[string]map[string]bool{}, consent: map[string]bool{}}
	if w.r.IntN(4) > 0 {
		w.gates.bake = time.Duration(w.r.IntN(3)) * 10 * time.Second
		w.gates.samples, w.gates.approve = w.r.IntN(3), w.r.IntN(3) == 0
	}
	if w.gates.bake > 0 {
		w.policy.Bake = w.gates.bake.String()
	}
	if w.gates.samples > 0 {
		w.policy.Gate, w.policy.GateSamples, w.policy.GateInterval, w.policy.GateTimeout = "slo", w.gates.samples, "5s", "5m"
	}
	w.policy.ApproveEach = w.gates.approve
}

// gateRun is what an orchestrator reads of the run that the gate asked for: it may
// be behind.
func (w *world) gateRun() *pace.GateRun {
	if w.book.Step == nil || w.book.Step.Gate == nil || w.book.Step.Gate.Run == "" {
		return nil
	}
	id := w.book.Step.Gate.Run
	i := slices.IndexFunc(w.gates.runs, func(r *gateRun) bool { return r.id == id })
	if i < 0 {
		w.gates.runs = append(w.gates.runs, &gateRun{id: id, step: stepKey(w.book.Step)})
		w.note("run %s is asked", id)
		return nil
	}
	if w.r.IntN(4) == 0 {
		return nil
	}
	return &pace.GateRun{ID: id, Answer: w.gates.runs[i].answer, Line: "error rate"}
}

// answerGate ends the last run of a gate.
func (w *world) answerGate(sound bool) {
	if n := len(w.gates.runs); n > 0 && w.gates.runs[n-1].answer == pace.GateAsking {
		run := w.gates.runs[n-1]
		run.answer = pace.GateYes
		if !sound && w.r.IntN(4) == 0 {
			run.answer = []pace.GateAnswer{pace.GateNo, pace.GateUnanswered}[w.r.IntN(2)]
		}
		w.note("run %s answers %q", run.id, run.answer)
	}
}

// approve is an operator's consent.
func (w *world) approve() {
	if s := w.book.Step; s != nil && s.Approved == nil && w.gates.approve {
		next := *s
		next.Approved = &cluster.Hold{By: "ann"}
		w.book.Step = &next
		w.gates.consent[stepKey(s)] = true
		w.note("%s is approved", s)
	}
}

// checkGates holds a plan to the gates: a step begins after the one before has baked, its
// samples have passed in a row, and an operator has approved it where that is asked for.
func (w *world) checkGates(before *stage.Step, s stage.State, p stage.Planned) {
	after := p.Book.Step
	failed := func(format string, args ...any) {
		w.t.Fatalf("%s\nstep was %+v\nstep is %+v\n%s", fmt.Sprintf(format, args...), before, after, strings.Join(w.log, "\n"))
	}
	gated := w.gates.bake > 0 || w.gates.samples > 0 || w.gates.approve
	if !gated {
		return
	}
	same := before != nil && after != nil && stepKey(before) == stepKey(after)
	if before != nil && !same && len(before.Hosts) > 0 {
		last := after == nil || !after.Began.Equal(before.Began)
		switch wanted := w.stillWanted(before, s); {
		case !last && after.Number != before.Number+1:
			failed("a step is left out")
		case last && !wanted: // the change is on all hosts, or its value was replaced
		case w.now.Sub(w.gates.work) < w.gates.bake:
			failed("the step is over after %v of %v", w.now.Sub(w.gates.work), w.gates.bake)
		case w.gates.samples > w.yes(before):
			failed("the step is over after %d samples of %d", w.yes(before), w.gates.samples)
		case w.gates.approve && !w.gates.consent[stepKey(before)]:
			failed("the step was not approved")
		}
	}
	for _, node := range p.Offers {
		i := slices.IndexFunc(s.Hosts, func(h stage.Host) bool { return h.Node == node })
		_, member := w.stepHosts(after)[node]
		switch {
		case !member && w.beforeItsTurn(node, s, p):
			continue
		case !member:
			failed("%s has a grant and is not in the step", node)
		case after.Gate != nil:
			failed("%s has a grant while the gate of its step holds the others", node)
		case after.Kind == stage.StepZone && s.Hosts[i].Zone != after.Zone:
			failed("%s is of zone %s", node, s.Hosts[i].Zone)
		case after.Kind != stage.StepZone && len(after.Hosts) > after.Size:
			failed("%d hosts are in a step of %d", len(after.Hosts), after.Size)
		}
		if same && before.Hosts[node] {
			w.gates.consent[stepKey(after)] = false // it was for other content
		}
		w.gates.work = w.now
	}
}

func (w *world) stepHosts(step *stage.Step) map[string]bool {
	if step == nil {
		return nil
	}
	return step.Hosts
}

// beforeItsTurn reports whether a host that is out of service may be offered a grant outside of a step: hosts that are out, of which
// none is at work, use up the room.
func (w *world) beforeItsTurn(node string, s stage.State, p stage.Planned) bool {
	out := map[string]bool{}
	for _, h := range s.Hosts {
		if h.Report.Open() && h.Up {
			return false
		}
		failed := slices.ContainsFunc(p.Stops.Stops, func(stop stage.Stop) bool { return stop.Node == h.Node && stop.Resumed == nil })
		if h.Service != pace.InService || failed || h.Report.State == cluster.StageFailed {
			out[h.Node] = true
		}
	}
	return len(p.Offers) == 1 && out[node] && len(out) >= w.allowed
}

// stillWanted reports whether a host wants what hosts took in a step.
func (w *world) stillWanted(step *stage.Step, s stage.State) bool {
	return slices.ContainsFunc(s.Hosts, func(h stage.Host) bool {
		return h.Report.Wants != "" && slices.ContainsFunc(h.Report.Changed.List, func(i cluster.StageInput) bool {
			return w.gates.taken[stepKey(step)][i.Digest]
		})
	})
}

// yes is how many of the last runs of a step passed in a row.
func (w *world) yes(step *stage.Step) (n int) {
	for _, run := range slices.Backward(w.gates.runs) {
		if run.step != stepKey(step) || run.answer != pace.GateYes {
			break
		}
		n++
	}
	return n
}

// took notes what a host takes in the present step.
func (w *world) took(h *host) {
	w.gates.work = w.now
	if !w.stepHosts(w.book.Step)[h.node] { // before its turn
		return
	}
	key := stepKey(w.book.Step)
	if w.gates.taken[key] == nil {
		w.gates.taken[key] = map[string]bool{}
	}
	for _, i := range h.report.Taken.List {
		w.gates.taken[key][i.Digest] = true
	}
}

// TestGatesAreAsked: the histories of the other tests have gates that pass, fail and
// cannot be asked.
func TestGatesAreAsked(t *testing.T) {
	t.Parallel()
	answers, stopped, steps := map[pace.GateAnswer]int{}, 0, 0
	for seed := range raced.Histories(400) {
		w := newWorld(t, seed)
		for range 600 {
			w.step()
			if s := w.book.Step; s != nil {
				steps = max(steps, s.Number)
			}
			for _, s := range w.stops.Stops {
				if s.Step != "" {
					stopped++
				}
			}
		}
		for _, r := range w.gates.runs {
			answers[r.answer]++
		}
	}
	if !raced.Enabled && (answers[pace.GateYes] < 30 || answers[pace.GateNo] == 0 || answers[pace.GateUnanswered] == 0 || stopped == 0 || steps < 3) {
		t.Errorf("answers %v, %d plans with a gate that stops, at most %d steps", answers, stopped, steps)
	}
}
