package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/slots"
)

// Kinds of decisions.
const (
	DecideAdmit    = "admitted"
	DecideHold     = "held back" // too many are out of service
	DecideGoOn     = "goes on"   // not held back any more
	DecidePause    = "paused"
	DecideRollback = "rolled back"
	DecideDone     = "done"
	DecideForgive  = "failures accepted"
)

// DecisionKinds returns all kinds of decisions.
func DecisionKinds() []string {
	return []string{DecideAdmit, DecideHold, DecideGoOn, DecidePause, DecideRollback, DecideDone, DecideForgive}
}

// Decision is one thing that Plan decided, for people.
type Decision struct {
	Kind   string   `json:"kind"`
	Text   string   `json:"text"`
	Reason string   `json:"reason,omitempty"`
	Nodes  []string `json:"nodes,omitempty"` // that it is about, the first of them
	Count  int      `json:"count"`           // all of them
}

// Plan decides what becomes of a rollout: the document as it should be, how
// many slots group Slots should have (slots.Keep: as it is), and what was
// decided; nothing when the document stays. It is a pure function: planning
// again on the result decides nothing.
//
// A document for another version than the given one is a rollback: the desired
// version is to change with it.
func Plan(d Document, v View, now time.Time) (next Document, limit int, decisions []Decision) {
	p := planner{survey: newSurvey(d, v, now), view: v, began: d.Rule}
	if !d.Over() && d.Stopped == nil {
		p.decide()
	}
	p.full()
	if p.doc.equal(d) {
		return d, p.limit(), nil
	}
	return p.doc, p.limit(), p.decisions
}

type planner struct {
	survey
	view      View
	began     Rule // before anything was decided
	decisions []Decision
}

func (p *planner) say(kind, reason string, about []ranked, format string, args ...any) {
	p.decisions = append(p.decisions, Decision{
		Kind: kind, Text: fmt.Sprintf(format, args...), Reason: reason, Nodes: names(about), Count: len(about),
	})
}

// decide goes from what forbids to what allows.
func (p *planner) decide() {
	if err := p.doc.Policy.Validate(); err != nil {
		p.stop("the policy in the document is damaged: "+err.Error()+": trigger again", nil)
		return
	}
	p.forgive()
	if p.doc.UsesSlots() && p.broken() {
		return
	}
	switch {
	case len(p.members) == 0:
	case p.doc.Policy.Plain() || p.doc.Phase == RollingBack:
		p.finish()
	default:
		p.advance()
	}
	if p.doc.UsesSlots() {
		p.late()
	}
}

// forgive takes over the failures that somebody went on with; of those that
// are repaired none is left for others.
func (p *planner) forgive() {
	failures := p.standing(failed)
	if p.doc.Forgive {
		p.doc.Forgive, p.doc.Forgiven = false, len(failures)
		if len(failures) > 0 {
			p.say(DecideForgive, "the rollout was resumed", failures, "%d failures do not count any more", len(failures))
		}
	}
	p.doc.Forgiven = min(max(0, p.doc.Forgiven), len(failures))
}

// broken stops the rollout, or takes it back, when too many failed.
func (p *planner) broken() bool {
	failures := p.standing(failed)
	if len(failures) <= p.doc.Policy.MaxFailures+p.doc.Forgiven {
		return false
	}
	reason := fmt.Sprintf("%d failed, and the policy allows %d: %s", len(failures), p.doc.Policy.MaxFailures+p.doc.Forgiven,
		p.failureText(failures))
	previous := p.doc.Previous
	switch {
	case p.doc.Policy.OnFailure != OnFailureRollback || p.doc.RollbackOf != nil:
		p.stop(reason, failures)
	case previous == "" || previous == p.doc.Version:
		p.stop(reason+"; it is not rolled back, as no version is known that all members ran without a failure", failures)
	default:
		p.rollback(reason, failures)
	}
	return true
}

// failureText names the first of failures and why.
func (s survey) failureText(failures []ranked) string {
	m := failures[0]
	text := m.Node + ": " + shorten(m.failure(s.doc, s.now))
	if len(failures) > 1 {
		text += fmt.Sprintf("; and %s", strings.Join(names(failures[1:]), ", "))
	}
	if len(failures) > mostNames+1 {
		text += ", …"
	}
	return text
}

// mostText bounds what is taken over from members, in characters.
const mostText = 200

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > mostText {
		return string(r[:mostText]) + "…"
	}
	return text
}

func (p *planner) stop(reason string, about []ranked) {
	p.doc.Stopped = &Stop{Reason: reason, By: byJorc, Since: stamp(p.now)}
	p.say(DecidePause, reason, about, "the rollout of %s is paused", p.doc.Version)
}

// rollback makes the document that takes the version back: everybody who left
// the previous version is admitted, and a window is not waited for.
func (p *planner) rollback(reason string, about []ranked) {
	d := p.doc
	policy := Policy{
		MaxParallel: d.Policy.MaxParallel, MaxFailures: d.Policy.MaxFailures, MinHealthy: d.Policy.MinHealthy,
		NodeDeadline: d.Policy.NodeDeadline, ProgressDeadline: d.Policy.ProgressDeadline, OnFailure: OnFailurePause,
	}
	for _, r := range d.Policy.Order {
		if r.Kept {
			policy.Order = append(policy.Order, r)
		}
	}
	p.doc = Document{
		Version: d.Previous, Previous: d.Previous, Policy: policy, By: byJorc, Started: stamp(p.now), Since: stamp(p.now),
		Phase: RollingBack, Rule: Rule{All: true}, Counts: p.counts, RollbackOf: &Rollback{Version: d.Version, Reason: reason},
	}
	p.survey = newSurvey(p.doc, p.view, p.now)
	p.doc.Forgiven = p.counts.Failed // they are why
	p.say(DecideRollback, reason, about, "%s is rolled back to %s", d.Version, d.Previous)
	p.finish() // nobody may have left
}

// finish ends a rollout in which everybody is admitted, when nobody is left.
func (p *planner) finish() {
	if p.doc.Phase == Waiting {
		p.enter(Batch, 1)
	}
	if p.quiet() && p.counts.Pending == 0 && !p.gone() {
		p.end()
	}
}

// quiet tells whether nobody is under way.
func (p *planner) quiet() bool { return p.counts.Working == 0 && len(p.others) == 0 }

// gone tells whether so many are down that nothing can be concluded from those
// who are not.
func (s survey) gone() bool {
	if !s.doc.UsesSlots() {
		return s.counts.Down > 0 && s.counts.Done == 0
	}
	allowed, _ := s.room()
	return s.counts.Down >= min(allowed, s.counts.Members)
}

func (p *planner) end() {
	p.enter(Done, 0)
	p.doc.Rule, p.doc.Finished = Rule{All: true}, stamp(p.now)
	reason := ""
	if p.counts.Down > 0 {
		reason = fmt.Sprintf("%d are down and follow when they are back", p.counts.Down)
	}
	p.say(DecideDone, reason, p.standing(failed), "%d of %d members run %s, %d failed", p.counts.Done, p.counts.Members, p.doc.Version, p.counts.Failed)
}

// enter changes the phase.
func (p *planner) enter(phase Phase, batch int) {
	if p.doc.Phase != phase || p.doc.Batch != batch {
		p.doc.Phase, p.doc.Batch, p.doc.Since = phase, batch, stamp(p.now)
		p.doc.Counts = p.counts
	}
}

// late pauses a rollout in which nothing moves.
func (p *planner) late() {
	deadline := time.Duration(p.doc.Policy.ProgressDeadline)
	if deadline == 0 || p.doc.Over() || p.doc.Stopped != nil || p.waitsForPromotion() || len(p.members) == 0 {
		return
	}
	if p.doc.Phase != RollingBack && !windowsOpen(p.doc.Policy.Windows, p.now) {
		return
	}
	moved := latest(p.doc.Since, windowsOpenSince(p.doc.Policy.Windows, p.now))
	for _, m := range p.members {
		if m.Version == p.doc.Version && !m.Arrived.After(p.now) {
			moved = latest(moved, m.Arrived)
		}
	}
	if p.now.Sub(moved) <= deadline {
		return
	}
	p.stop(fmt.Sprintf("no member arrived for longer than %v; it waits for %s", p.doc.Policy.ProgressDeadline, strings.Join(p.waits(), "; ")),
		p.unsettled())
}

// unsettled are the members that the rule admits and that are not there yet.
func (s survey) unsettled() []ranked {
	return s.with(func(m ranked) bool { return m.standing == working || !m.settled() && s.doc.Rule.Admits(m.key) })
}

// full keeps the rule's Full true to how many are out of service.
func (p *planner) full() {
	if p.doc.Over() || !p.doc.UsesSlots() {
		return
	}
	allowed, out := p.room()
	switch full := len(out) >= allowed; {
	case full && !p.doc.Rule.Full:
		p.say(DecideHold, fmt.Sprintf("the policy allows %d to be out of service", allowed), out, "%d are out of service without having been admitted: only they may begin", len(out))
		p.doc.Rule.Full = true
	case !full && p.doc.Rule.Full:
		if p.began.To != nil || p.began.All {
			p.say(DecideGoOn, "", out, "%d are out of service of %d that may be", len(out), allowed)
		}
		p.doc.Rule.Full = false
	}
}

// limit is how many slots there should be. Members that are out of service
// without one take theirs away. There is no limit of nobody (0 is any number):
// where it would be that, the rule's Full lets only those begin who are out of
// service already, and for those there are as many slots as the policy allows.
func (s survey) limit() int {
	if !s.doc.UsesSlots() {
		return slots.Keep
	}
	allowed, out := s.room()
	if len(out) >= allowed {
		return allowed
	}
	return allowed - len(out)
}

// stamp is a time as documents have it: in seconds, as nodes report theirs.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
