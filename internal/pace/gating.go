package pace

import (
	"time"

	"github.com/jorc/jorc/internal/event"
)

// pass reports whether the step that is done lets the next one begin, and moves its gate on.
// There was no step before the first, and what is taken back has no gates.
func (v *Survey) pass() bool {
	if v.Steps == 0 || v.Phase == RollingBack {
		return true
	}
	return (!v.Policy.Gates() || v.passGate()) && !v.WaitsForApproval()
}

// passGate moves the gate of the step that is done on; it reports whether it is passed.
func (v *Survey) passGate() bool {
	if v.Gate == nil {
		g := NewGate(v.now)
		v.Gate = &g
		v.record(event.ChangeStepDone, v.GroupText(), nil, "%s is done: %s", v.doneText(), v.Policy.GateText())
		if v.rebuild(); v.broken() { // an arrived member with a critical check has failed while it bakes
			return false
		}
	}
	g := *v.Gate
	if !g.Baked {
		if g = v.Policy.Baked(g, len(v.Unsound()) == 0, v.now); !g.Baked {
			return false
		}
		v.Gate = &g
		v.rebuild()
	}
	if !g.Passed {
		id := v.GateRunID(v.Asks + 1)
		g = v.Policy.Sampled(g, v.Asked, id, v.Halted != "", v.now)
		if g.Run == id {
			v.Asks++
		}
		v.Gate = &g
		switch {
		case g.Failed:
			v.gateFailed()
		case g.Passed:
			v.Gated = Second(v.now)
			v.record(event.ChangeGatePassed, g.Answer, nil, "%s passed its gate", v.doneText())
		}
	}
	return g.Passed
}

// GateRunID is the id of the ask-th run of the present step's gate.
func (c *Change) GateRunID(ask int) string { return GateRunID(c.Tag, c.Created, c.Steps, ask) }

// gateFailed takes the change back when its gate says no and the policy says so, and pauses
// it otherwise.
func (v *Survey) gateFailed() {
	g := *v.Gate
	why, said := v.Policy.GateFailure(g, v.Asked, v.doneText(), v.Words.Resume)
	g.Run = ""
	v.Gate = &g
	if said {
		v.fall(why, nil)
	} else {
		v.pause(why, nil)
	}
}

// rebuild makes the members again: which of them failed depends on the gate.
func (v *Survey) rebuild() {
	v.survey()
	v.Forgiven = min(v.Forgiven, v.Now.Failed)
}

// ungate forgets the gate of a step in which a member is at work again.
func (v *Survey) ungate() {
	if v.Gate != nil {
		v.Gate, v.Gated = nil, Second(v.now)
		v.rebuild()
	}
}

// leave ends the gate of a step, as the next one begins or the change ends.
func (v *Survey) leave() {
	if v.Gate == nil && !v.Approved() {
		return
	}
	passed := &PassedGate{Step: v.doneText(), At: Second(v.now)}
	if v.Gate != nil {
		passed.Answer = v.Gate.Answer
	}
	if v.Approved() {
		passed.By = v.Approval.By
	}
	v.PassedGate, v.Gate, v.Gated = passed, nil, Second(v.now)
}

// gatePassed reports whether the gate of the present step is passed, but for consent.
func (v *Survey) gatePassed() bool {
	return !v.Policy.Gates() || v.Steps == 0 || v.Gate != nil && v.Gate.Passed
}

// bakeFailure returns why a host that arrived counts as failed while its step bakes;
// empty: it does not.
func (m Member) bakeFailure(c *Change, now time.Time) string {
	if c.Gate == nil || c.Gate.Baked || c.Policy.Bake == 0 || !m.Want.Has || m.Part.Granted() || m.Part.GivenUp() {
		return ""
	}
	switch {
	case m.Out() == OutCritical:
		return "a check is critical while its step bakes"
	case !m.Up && !m.DownSince.IsZero() && now.Sub(Latest(m.DownSince, c.Gate.Since)) > downGrace:
		return "it is down since " + Stamp(m.DownSince) + " while its step bakes"
	}
	return ""
}

// gateWaits says what the gate of the present step waits for; none: it holds nothing.
func (v *Survey) gateWaits() []string {
	if v.Gate == nil {
		return nil
	}
	waits := v.Policy.GateWaits(*v.Gate, v.doneText())
	if unsound := v.Unsound(); len(waits) > 0 && !v.Gate.Baked && len(unsound) > 0 {
		waits = append(waits, Listed(unsound)+" to be up again")
	}
	return waits
}
