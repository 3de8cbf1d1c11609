package rollout

import (
	"fmt"
	"strings"
)

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
