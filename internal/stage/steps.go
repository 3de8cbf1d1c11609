package stage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Kinds of steps.
const (
	StepCanary = "canary" // the first hosts of a change
	StepZone   = "zone"   // the hosts of one zone
	StepBatch  = "batch"  // as many hosts as may change at the same time
)

// Step is the step of a change in a stage that has gates: hosts outside of it
// get no grant before it has passed.
type Step struct {
	Number int       `json:"number"` // from 1
	Began  time.Time `json:"began"`
	Kind   string    `json:"kind"`
	Zone   string    `json:"zone,omitempty"` // of StepZone
	Size   int       `json:"size,omitempty"` // how many hosts it admits; 0: all of the zone
	// Hosts are the hosts that were offered a grant in it: true, once a host took it.
	Hosts  map[string]bool     `json:"hosts,omitempty"`
	Inputs cluster.StageInputs `json:"inputs,omitzero"` // what changes on them; more than a report lists
	// Gate is its gate, once nothing more is expected of its hosts; Rules is the policy
	// of the gate.
	Gate  *pace.GateProgress `json:"gate,omitempty"`
	Rules string             `json:"rules,omitempty"`
	// Approved: an operator consents to the next step.
	Approved *cluster.Hold `json:"approved,omitempty"`
}

// mostStepInputs bounds Step.Inputs.
const mostStepInputs = 200

// String is the step in words.
func (s Step) String() string {
	switch s.Kind {
	case StepCanary:
		return "the canary"
	case StepZone:
		return fmt.Sprintf("zone %q", s.Zone)
	}
	return fmt.Sprintf("batch %d", s.Number)
}

// HostNames returns the hosts that accepted a grant in the step, sorted.
func (s Step) HostNames() []string {
	names := []string{}
	for _, node := range slices.Sorted(maps.Keys(s.Hosts)) {
		if s.Hosts[node] {
			names = append(names, node)
		}
	}
	return names
}

func (s Step) clone() *Step {
	s.Hosts = maps.Clone(s.Hosts)
	s.Inputs.List = slices.Clone(s.Inputs.List)
	if s.Gate != nil {
		g := *s.Gate
		s.Gate = &g
	}
	return &s
}

// admits reports whether a host may join the step while it is not done.
func (s Step) admits(h *ranked) bool {
	if s.Kind == StepZone {
		return h.Zone == s.Zone
	}
	return len(s.Hosts) < s.Size
}

// room is how many hosts may join the step; below zero: there is no limit.
func (s Step) room() int {
	if s.Kind == StepZone {
		return -1
	}
	return max(0, s.Size-len(s.Hosts))
}

// stoppedBy reports whether the stop is of the step's gate, or of a host in the step.
func (s Step) stoppedBy(stop Stop) bool {
	return stop.Resumed == nil && (stop.Step != "" || s.Hosts[stop.Node])
}

// passed reports whether the next step may begin.
func (s Step) passed(policy pace.Policy) bool {
	return s.Gate != nil && s.Gate.Passed && (!policy.ApproveEach || s.Approved != nil)
}

// steps moves the gate of the present step on.
func (p *planner) steps() {
	step := p.Book.Step
	switch {
	case step == nil:
		return
	case !p.policy.Gated():
		p.Book.Step = nil
		return
	case p.gone() || p.superseded():
		p.Book.Step = nil
		p.Stops.Stops = slices.DeleteFunc(p.Stops.Stops, func(s Stop) bool { return s.Step != "" }) // no host wants what the gate stopped
		return
	case !p.stepDone():
		if step.Gate != nil && !step.passed(p.policy) {
			step.Gate, step.Approved = nil, nil // a host of the step is at work again
		}
		return
	}
	if again := step.Gate != nil && step.Gate.Failed && !p.gateStopped(); step.Gate == nil || again || step.Rules != p.policy.GatesString() {
		g := pace.NewGate(p.now)
		if step.Gate != nil {
			step.Approved = nil
		}
		step.Gate, step.Rules = &g, p.policy.GatesString()
		if what := p.policy.GateText(); what != "" {
			p.event(event.ChangeStepDone, "", "%s is done: %s", step, what)
		}
	}
	if !step.Gate.Passed && !step.Gate.Failed {
		p.moveGate(step)
	}
	if step.Gate.Passed && !p.wanted(step.Inputs) { // no host is left for another step
		p.leaveStep()
	}
}

// moveGate moves the gate of a step on that is neither passed nor failed.
func (p *planner) moveGate(step *Step) {
	g := *step.Gate
	defer func() { step.Gate = &g }()
	if !g.Baked {
		critical, out := p.unsound(step)
		if len(critical) > 0 {
			g.Failed = true
			p.stopGate(step, fmt.Sprintf("%s failed while it baked: a check is critical on %s", step, strings.Join(critical, ", ")))
			return
		}
		if g = p.policy.Baked(g, len(out) == 0, p.now); !g.Baked {
			return
		}
	}
	id := pace.GateRunID("stage."+p.Stage, step.Began, step.Number, p.Book.Asks+1)
	g = p.policy.Sampled(g, p.Gate, id, p.Halted != "", p.now)
	switch {
	case g.Run == id:
		p.Book.Asks++
	case g.Failed:
		why, _ := p.policy.GateFailure(g, p.Gate, step.String(), "jorc stage resume "+p.Stage)
		g.Run = ""
		p.stopGate(step, why)
	case g.Passed && p.policy.GateText() != "":
		p.event(event.ChangeGatePassed, "", "%s passed its gate%s", step, prefixed(": ", g.Answer))
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// unsound returns the hosts of a step that are out of service, and those of them
// with a critical check.
func (p *planner) unsound(step *Step) (critical, out []string) {
	for _, h := range p.hosts {
		if _, member := step.Hosts[h.Node]; !member {
			continue
		}
		if h.Service == pace.OutCritical {
			critical = append(critical, h.Node)
		}
		if h.Service != pace.InService || !h.Up {
			out = append(out, h.Node)
		}
	}
	return critical, out
}

// stopGate records that a gate stopped the change of a step.
func (p *planner) stopGate(step *Step, why string) {
	inputs := p.sharedInputs(step.Inputs)
	p.Stops.Stops = append(p.Stops.Stops, Stop{
		Step: step.String(), Inputs: inputs, Since: p.now.Truncate(time.Second), Reason: text.Line(why, maxStopReason),
	})
	p.event(event.ChangeStopped, "", "%s (%s)", text.Line(why, maxStopReason), inputsText(inputs))
}

// maxStopReason bounds the reason of a stop, in bytes.
const maxStopReason = 400

// gateStopped reports whether a gate stops the stage.
func (p *planner) gateStopped() bool {
	return slices.ContainsFunc(p.Stops.Stops, func(s Stop) bool { return s.Step != "" && s.Resumed == nil })
}

// sharedInputs bounds the inputs of a step for a stop: those of most hosts come
// first, and an input that only one host has does not count beyond the bound.
func (p *planner) sharedInputs(inputs cluster.StageInputs) cluster.StageInputs {
	counts := map[string]int{}
	for _, h := range p.hosts {
		own := map[string]bool{}
		for _, i := range slices.Concat(h.Report.Changed.List, h.Report.Taken.List) {
			own[i.Digest] = true
		}
		for digest := range own {
			counts[digest]++
		}
	}
	hosts := func(i cluster.StageInput) int { return counts[i.Digest] }
	list := slices.Clone(inputs.List)
	slices.SortStableFunc(list, func(a, b cluster.StageInput) int { return cmp.Compare(hosts(b), hosts(a)) })
	n := len(list)
	for n > cluster.MostStageInputs && hosts(list[n-1]) <= 1 {
		n--
	}
	shared := cluster.StageInputsOf(list[:n])
	shared.More += inputs.More
	return shared
}

// wanted reports whether a host wants one of the inputs.
func (p *planner) wanted(inputs cluster.StageInputs) bool {
	return slices.ContainsFunc(p.hosts, func(h *ranked) bool { return h.Report.Wants != "" && common(h.Report.Changed, inputs) })
}

// gone reports whether no host of the step has what it brought, and none wants it.
func (p *planner) gone() bool {
	step := p.Book.Step
	return !p.atWork() && !p.wanted(step.Inputs) && !slices.ContainsFunc(p.hosts, func(h *ranked) bool {
		r := h.Report
		return step.Hosts[h.Node] && (r.State == cluster.StageDone || r.State == cluster.StageFailed) && common(r.Taken, step.Inputs)
	})
}

// superseded reports whether another value replaced what the step brings: a host
// of the step wants that, and no host wants what the step brings.
func (p *planner) superseded() bool {
	step := p.Book.Step
	if p.atWork() || p.wanted(step.Inputs) {
		return false
	}
	replaces := func(i cluster.StageInput) bool {
		return slices.ContainsFunc(step.Inputs.List, func(o cluster.StageInput) bool { return o.Name == i.Name && o.Digest != i.Digest })
	}
	return slices.ContainsFunc(p.hosts, func(h *ranked) bool {
		return step.Hosts[h.Node] && h.Report.Wants != "" && slices.ContainsFunc(h.Report.Changed.List, replaces)
	})
}

// stepDone reports whether nothing more is expected of the hosts that the present
// step admits.
func (p *planner) stepDone() bool {
	step := p.Book.Step
	if len(step.Hosts) == 0 || p.atWork() {
		return false
	}
	if slices.ContainsFunc(p.Stops.Stops, func(s Stop) bool { return s.Node != "" && step.stoppedBy(s) }) {
		return false
	}
	return !slices.ContainsFunc(p.survey.Awaited(), func(m *pace.Member) bool { return step.Hosts[m.Node] || step.admits(p.byNode[m.Node]) })
}

// stepHolds returns why the present step keeps a host from a grant; empty: it does not.
func (p *planner) stepHolds(h *ranked) string {
	step := p.Book.Step
	switch {
	case !p.begun() || step.Hosts[h.Node]:
		return ""
	case step.Gate != nil:
		return strings.Join(p.stepWaits(), "; ")
	case !step.admits(h):
		return step.String() + " comes first"
	}
	return ""
}

// stepWaits returns what the next step waits for.
func (p *planner) stepWaits() []string {
	step := p.Book.Step
	if step == nil || step.Gate == nil || !p.policy.Gated() {
		return []string{}
	}
	waits := append([]string{}, p.policy.GateWaits(*step.Gate, step.String())...)
	if _, out := p.unsound(step); !step.Gate.Baked && len(out) > 0 {
		waits = append(waits, strings.Join(out, ", ")+" to be in service again")
	}
	if step.Gate.Passed && !step.passed(p.policy) {
		waits = append(waits, fmt.Sprintf("'jorc stage approve %s'", p.Stage))
	}
	return waits
}

// begun reports whether the stage has a step that holds the hosts outside of it.
func (p *planner) begun() bool {
	step := p.Book.Step
	return p.policy.Gated() && step != nil && len(step.Hosts) > 0 && !step.passed(p.policy)
}

// inStep reports whether a host took a grant of the present step.
func (p *planner) inStep(node string) bool { return p.begun() && p.Book.Step.Hosts[node] }

// newcomers is how many hosts may join the present step; below zero: there is no limit.
func (p *planner) newcomers() int {
	if !p.begun() {
		return -1
	}
	return p.Book.Step.room()
}

// nextStep is the step that begins with the first of offers, once the one before has passed; nil: none does.
func (p *planner) nextStep(offers []pace.Offer) *Step {
	if !p.policy.Gated() || p.begun() || len(offers) == 0 || offers[0].Early {
		return nil
	}
	allowed, _ := p.survey.Room()
	next := &Step{Number: 1, Began: p.now, Kind: StepBatch, Size: allowed, Hosts: map[string]bool{}}
	switch step := p.Book.Step; {
	case step == nil:
	case len(step.Hosts) == 0: // no host took its grant: the step begins with another host
		next.Number, next.Began = step.Number, step.Began
	default:
		p.leaveStep()
		next.Number, next.Began = step.Number+1, step.Began
	}
	switch {
	case next.Number == 1 && p.policy.Canary > 0:
		next.Kind, next.Size = StepCanary, p.policy.Canary
	case p.policy.ZoneByZone:
		next.Kind, next.Zone, next.Size = StepZone, p.byNode[offers[0].Node].Zone, 0
	}
	return next
}

// enterStep adds a host that is offered a grant to the present step. One that is offered it before its turn joins none.
func (p *planner) enterStep(h *ranked, early bool) {
	step := p.Book.Step
	if !p.policy.Gated() || step == nil {
		return
	}
	took, member := step.Hosts[h.Node]
	switch {
	case took:
		step.Approved = nil // it was for other content
	case !member && early:
		return
	}
	step.Gate, step.Hosts[h.Node] = nil, took
	for _, i := range h.Report.Changed.List {
		switch {
		case step.Inputs.Has(i.Digest):
		case len(step.Inputs.List) == mostStepInputs:
			step.Inputs.More++
		default:
			step.Inputs.List = append(step.Inputs.List, i)
		}
	}
	step.Inputs.More += h.Report.Changed.More
}

// leaveStep ends the present step, whose gate is passed.
func (p *planner) leaveStep() {
	step := p.Book.Step
	passed := &pace.PassedGate{Step: step.String(), At: p.now.Truncate(time.Second), Answer: step.Gate.Answer}
	if step.Approved != nil {
		passed.By = step.Approved.By
	}
	p.Book.PassedGate, p.Book.Step = passed, nil
}

// stepAnswered notes what became of a host's offer: one that it did not accept is
// forgotten.
func (p *planner) stepAnswered(h *ranked) {
	step := p.Book.Step
	if step == nil {
		return
	}
	took, member := step.Hosts[h.Node]
	if !member || took {
		return
	}
	switch id := h.grant(p.Stage).ID; {
	case id != "" && id == h.Answer.ID:
		step.Hosts[h.Node] = true
	case !h.has:
		delete(step.Hosts, h.Node)
	}
}

// atWork reports whether a host has a grant of the stage, or is offered one.
func (p *planner) atWork() bool { return p.open > 0 }

// stepPending reports whether the present step holds the end of the change.
func (p *planner) stepPending() bool {
	step := p.Book.Step
	return step != nil && len(step.Hosts) > 0 && p.policy.Gated() && !(step.Gate != nil && step.Gate.Passed)
}
