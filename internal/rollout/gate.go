package rollout

import (
	"time"

	"github.com/jorc/jorc/internal/pace"
)

// gateAgain is the gate after a resume. What a pause interrupted continues, what
// failed begins again.
func (d Document) gateAgain(now time.Time) *pace.GateProgress {
	if d.Gate == nil || d.Gate.Passed {
		return d.Gate
	}
	g := pace.GateProgress{Since: d.Gate.Since, Baked: d.Gate.Baked}
	if d.Gate.Failed || !g.Baked {
		g.Since, g.Baked = pace.Exact(now), false
	}
	return &g
}

// FactsOfGate returns the facts for the run of the document's gate. It is a pure function.
func FactsOfGate(d Document, s State, now time.Time) pace.GateFacts {
	p := newPlanner(d, s, now)
	f := pace.GateFacts{Version: d.Version, Previous: d.Previous, Step: d.stepText(), Hosts: []string{}}
	if d.Gate != nil {
		f.Sample = d.Gate.Samples + 1
	}
	for _, m := range p.admitted(func(m ranked) bool { return m.in.State == pace.HasIt }) {
		f.Hosts = append(f.Hosts, m.Node)
	}
	return f.Bounded()
}

// FactsOfStageGate returns the facts for the run of a stage's gate.
func FactsOfStageGate(stage, step string, g pace.GateProgress, hosts []string) pace.GateFacts {
	return pace.GateFacts{Stage: stage, Step: step, Sample: g.Samples + 1, Hosts: hosts}.Bounded()
}

// stepText is the present step in words.
func (d Document) stepText() string {
	if d.Stopped = nil; d.Phase == pace.Waiting {
		return "what was admitted before"
	}
	return d.StateText()
}
