package pace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/text"
)

// advance admits the next group or the next step once nothing more is expected of the
// admitted members.
func (v *Survey) advance() {
	if !v.SettledStep() {
		v.ungate()
		return
	}
	if v.Phase != Batch {
		if v.canary() {
			return
		}
		v.Batch = 0
	}
	v.batches()
}

// canary admits the canary, or reports that it has to be waited for.
func (v *Survey) canary() (wait bool) {
	if v.Policy.Canary == 0 {
		return false
	}
	last, ok := v.lastCanary()
	if !ok { // all are down or held
		return true
	}
	if first, found := v.firstUnsettled(last, Canary, 0); found {
		v.open(Canary, 0, first)
		return true
	}
	if v.TooManyDown() {
		return true
	}
	if v.Phase == Waiting { // they are there already
		v.enter(Canary, 0)
		v.Steps = max(1, v.Steps)
	}
	return v.WaitsForApproval()
}

// WaitsForApproval reports whether only consent is missing to leave the step.
// Where the policy asks for consent after each step, all but the last need it.
// Otherwise only the canary does, and it needs none when all canaries have been healthy for as long as the policy
// wants, which is when their grants are done.
func (v *Survey) WaitsForApproval() bool {
	if v.Over() || v.Phase == RollingBack || !v.gatePassed() {
		return false
	}
	if v.Policy.ApproveEach {
		return v.Steps > 0 && !v.Approved() && v.SettledStep() && v.remains()
	}
	if v.Phase != Canary || v.Promoted || v.Now.Working > 0 {
		return false
	}
	last, ok := v.lastCanary()
	canaries := v.With(func(m Member) bool { return ok && m.Key.Compare(last) <= 0 && m.Alive() && !m.Part.Silent() })
	if slices.ContainsFunc(canaries, func(m Member) bool { return !m.Settled() }) {
		return false
	}
	sound := func(m Member) bool { return m.State == HasIt && m.Out() == InService }
	return v.Policy.MinHealthy == 0 || !ok || slices.ContainsFunc(canaries, func(m Member) bool { return !sound(m) })
}

// batches admits the first batch that is not finished, or ends the change.
func (v *Survey) batches() {
	for k := max(1, v.Batch); k <= max(1, len(v.Policy.Batches)); k++ {
		last, ok := v.lastOf(k)
		if !ok {
			break
		}
		if first, found := v.firstUnsettled(last, Batch, k); found {
			v.open(Batch, k, first)
			return
		}
		if v.TooManyDown() {
			return
		}
	}
	if !v.TooManyDown() && len(v.HeldUp()) == 0 && (v.Steps == 0 || !v.Policy.Gates() || v.passGate()) {
		v.end()
	}
}

// firstUnsettled is the first member up to last of which a step expects something.
func (v *Survey) firstUnsettled(last Key, phase Phase, batch int) (Key, bool) {
	at := *v
	at.Phase, at.Batch = phase, batch
	for _, m := range v.Members {
		if m.Key.Compare(last) <= 0 && !m.Settled() && at.counted(m) {
			return m.Key, true
		}
	}
	return Key{}, false
}

// firstStep is the first step of which something is expected. It follows from the members alone.
func (v *Survey) firstStep() (phase Phase, batch int, group *Group) {
	first := func(phase Phase, batch int, last Key, ok bool) bool {
		if !ok {
			return false
		}
		key, found := v.firstUnsettled(last, phase, batch)
		if found && v.grouped() {
			group = &key.Group
		}
		return found
	}
	if v.Policy.Canary > 0 {
		if last, ok := v.lastCanary(); first(Canary, 0, last, ok) {
			return Canary, 0, group
		}
	}
	most := max(1, len(v.Policy.Batches))
	for batch := 1; batch <= most; batch++ {
		if last, ok := v.lastOf(batch); first(Batch, batch, last, ok) {
			return Batch, batch, group
		}
	}
	return Batch, most, nil
}

// open admits a step, of the group of its first member where groups come one after the
// other, once the step before lets it begin.
func (v *Survey) open(phase Phase, batch int, first Key) {
	var group *Group
	if v.grouped() {
		group = &Group{Place: first.Place, Zone: first.Zone}
	}
	same := group == nil && v.Group == nil || group != nil && v.Group != nil && *group == *v.Group
	if same && v.Phase == phase && v.Batch == batch || len(v.heldGroup(&first.Group)) > 0 || !v.pass() {
		return
	}
	v.leave()
	v.enter(phase, batch)
	v.Group, v.Counts = group, v.Now
	v.Steps++
	admitted := v.Admitted(func(m Member) bool { return !m.Settled() })
	v.record(event.ChangeStepBegan, v.GroupText(), admitted, "%s: %s admitted", v.StepText(), text.Count(len(admitted), "member is", "members are"))
}

// GroupText names the group whose turn it is.
func (v *Survey) GroupText() string {
	var parts []string
	g := v.Group
	if g == nil {
		return ""
	}
	if order := v.Policy.Order; g.Place >= 0 && g.Place < len(order) {
		parts = append(parts, fmt.Sprintf("role %q", order[g.Place].Name))
	}
	if v.Policy.ZoneByZone {
		parts = append(parts, fmt.Sprintf("zone %q", g.Zone))
	}
	return strings.Join(parts, ", ")
}

// StepText is the present step in words, with the batches of a policy.
func (p *Progress) StepText(policy Policy) string {
	if p.Phase == Batch {
		return fmt.Sprintf("batch %d of %d", p.Batch, max(1, len(policy.Batches)))
	}
	return string(p.Phase)
}

// StepText is the present step in words.
func (c *Change) StepText() string { return c.Progress.StepText(c.Policy) }

// doneText names the step that is done.
func (c *Change) doneText() string {
	if c.Phase == Waiting {
		return "what was admitted before"
	}
	return c.StepText()
}
