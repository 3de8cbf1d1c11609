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
