package pace

import (
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// Code says of what kind a reason is.
type Code string

// Codes of reasons: first the codes of a whole change, then the codes of one host.
const (
	BecauseFree    Code = "free" // no grants are needed: all hosts begin at once
	BecauseAborted Code = "aborted"
	BecausePaused  Code = "paused"
	BecauseHalted  Code = "halted"
	BecauseWindow  Code = "window" // At is when it opens; zero: it does not
	BecauseFreeze  Code = "freeze"
	BecauseQuiet   Code = "quiet" // Consul's KV was restored; until At

	BecauseDecided Code = "decided" // the orchestrator first writes what it decided of the change

	BecauseAbsent   Code = "absent" // there is no such change, or it is not of the host
	BecauseHas      Code = "has"    // it has what the change brings
	BecauseGranted  Code = "granted"
	BecauseFailed   Code = "failed"
	BecauseGivenUp  Code = "given up"
	BecauseApart    Code = "apart"
	BecauseHeld     Code = "held" // or drained
	BecauseDown     Code = "down"
	BecauseDeclined Code = "declined"
	BecauseSilent   Code = "silent" // it did not answer N offers; the next is At
	BecauseBarred   Code = "barred" // by the rules of its kind, such as the stop of a stage
	BecauseTag      Code = "tag"    // other hosts try it first: a canary, or another zone
	BecauseStep     Code = "step"   // another step comes first
	BecauseTurn     Code = "turn"   // a host of another role or zone comes first
	BecauseNext     Code = "next"   // the orchestrator offers it a grant next
	BecauseBudget   Code = "budget" // Limit
	BecauseRoom     Code = "room"   // N may be out, and Hosts are
)

// Reason is why a host is not offered a grant. Text makes the words.
type Reason struct {
	Code  Code
	Said  string // what else says: a hold, a host
	At    time.Time
	N     int
	Limit Limit
}

// None reports whether there is no reason.
func (r Reason) None() bool { return r.Code == "" }

// Outlook is what decides whether members without a grant are offered one.
type Outlook struct {
	survey     *Survey
	stopped    Reason
	step       Step
	waits      Reason // why the step admits no more
	candidates map[string]bool
	offered    map[string]bool
	denied     map[string]Reason
	room       Reason // the places that are taken
}

// Outlook returns what comes next.
func (v *Survey) Outlook() Outlook {
	o := Outlook{survey: v, stopped: v.stopped(), step: v.Step(), candidates: map[string]bool{}, offered: map[string]bool{}, denied: map[string]Reason{}}
	if !v.ByTag {
		said := fmt.Sprintf("phase %s, %d of %d members are admitted", v.StateText(), len(v.Admitted(func(Member) bool { return true })), v.Now.Members)
		if waits := v.Waits(); len(waits) > 0 {
			said += "; it waits for " + strings.Join(waits, "; ")
		}
		o.waits = Reason{Code: BecauseStep, Said: said}
	}
	for _, m := range v.candidates() {
		o.candidates[m.Node] = true
	}
	var next []string
	for _, offer := range v.Offers() {
		o.offered[offer.Node] = true
		next = append(next, offer.Node)
	}
	explained := map[Limit]string{}
	for _, d := range v.denied {
		if _, known := explained[d.Limit]; !known {
			explained[d.Limit] = v.Places.Explain(d.Limit)
		}
		o.denied[d.Node] = Reason{Code: BecauseBudget, Limit: d.Limit, Said: explained[d.Limit]}
	}
	allowed, out := v.Room()
	taken := v.outNames(out)
	if len(next) > 0 {
		taken = strings.TrimPrefix(taken+", "+strings.Join(next[:min(len(next), MostNames)], ", ")+" next", ", ")
	}
	o.room = Reason{Code: BecauseRoom, N: allowed, Said: taken}
	return o
}

// Why is why the member is not offered a grant; BecauseNext: it is.
func (o Outlook) Why(m Member) Reason {
	v := o.survey
	barred := v.barred(m)
	limit, denied := o.denied[m.Node]
	switch {
	case m.Want.Apart == "" && m.State == HasIt:
		return Reason{Code: BecauseHas}
	case m.State == Working:
		return Reason{Code: BecauseGranted}
	case m.State == Left:
		return Reason{Code: BecauseGivenUp}
	case m.State == Failed && m.Want.Apart == "" && !v.triesAgain(&m):
		return Reason{Code: BecauseFailed, Said: m.Failure(&v.Change, v.now)}
	case !o.stopped.None():
		return o.stopped
	case !barred.None():
		return barred
	case o.offered[m.Node]:
		return Reason{Code: BecauseNext}
	case !o.step.Admits(m.Key) && !v.outOfTurn(m):
		return o.waits
	case !o.candidates[m.Node]:
		return Reason{Code: BecauseTurn}
	case !v.kept[m.Node].None():
		return v.kept[m.Node]
	case denied:
		return limit
	}
	return o.room
}

// Explain is why a host is not offered its part of a change, by the rules of Plan; none: Plan
// offers it.
func Explain(s Situation, change, node string, now time.Time) Reason {
	for v, p := range inTurn(s, now) {
		if v.ID != change {
			continue
		}
		if p.Next != nil {
			return Reason{Code: BecauseDecided}
		}
		o := v.Outlook()
		for m := range v.everyone() {
			if m.Node != node {
				continue
			}
			if why := o.Why(m); why.Code != BecauseNext {
				return why
			}
			return Reason{}
		}
		for _, w := range v.Wants {
			if w.Node == node && w.Apart != "" {
				return Reason{Code: BecauseApart, Said: w.Apart}
			}
		}
	}
	return Reason{Code: BecauseAbsent}
}

// Explained is what was decided of a change of one host.
type Explained struct {
	Planned
	// Why the host is not offered a grant; none: it is, or the change does not reach it.
	Why Reason
}

// PlanExplained is Plan of changes that are of one host each, and says by the same rules why one is
// not offered.
func PlanExplained(s Situation, now time.Time) map[string]Explained {
	all := make(map[string]Explained, len(s.Changes))
	for v, p := range inTurn(s, now) {
		one := Explained{Planned: p}
		for m := range v.everyone() {
			if why := v.Outlook().Why(m); why.Code != BecauseNext {
				one.Why = why
			}
		}
		all[v.ID] = one
	}
	return all
}

// Text is the reason in words; empty without one. what is the change, as "the rollout".
func (r Reason) Text(what string) string {
	switch r.Code {
	case BecauseFree:
		return "no grants are needed: all hosts begin at once"
	case BecauseAborted:
		return what + " was aborted"
	case BecauseWindow:
		return ClosedText(r.At)
	case BecauseQuiet:
		return "Consul's KV was restored: grants resume at " + Stamp(r.At)
	case BecauseDecided:
		return "the orchestrator first writes what it decided of " + what
	case BecauseAbsent:
		return "it is no host of " + what
	case BecauseHas:
		return "it has what " + what + " brings"
	case BecauseGranted:
		return "it has its grant"
	case BecauseFailed:
		return "it failed: " + text.Line(r.Said, mostLine)
	case BecauseGivenUp:
		return "an operator gave up on it"
	case BecauseDown:
		return OutDown.Text()
	case BecauseDeclined:
		return "it cannot begin: " + text.Line(r.Said, mostLine)
	case BecauseSilent:
		return fmt.Sprintf("it did not answer %d offers; the next is at %s", r.N, Stamp(r.At))
	case BecauseStep:
		return "not admitted yet: " + r.Said
	case BecauseTurn:
		return "a host of another role or zone comes first"
	case BecauseNext:
		return "the orchestrator offers it a grant next"
	case BecauseRoom:
		return fmt.Sprintf("%d may be out of service at one time, and are: %s", r.N, r.Said)
	}
	return r.Said // a pause, a halt, a freeze, a hold, why it is apart or barred, a canary, the budget
}

// StateText is the phase with its details, as people see it.
func (c *Change) StateText() string {
	if c.Stopped != "" && !c.Over() {
		return "paused in phase " + c.StepText()
	}
	return c.StepText()
}

// outNames names members that are out of service, and since when.
func (v *Survey) outNames(out []Member) string {
	var all []string
	for _, m := range out[:min(len(out), MostNames)] {
		said := m.Node
		switch {
		case m.Part.Granted():
			said += " (grant since " + Stamp(m.Part.GrantedSince())
			if m.State == Failed {
				said += ", failed"
			}
			said += ")"
		default:
			said += " (" + m.Out().Text() + ")"
		}
		all = append(all, said)
	}
	return text.FewOf(", ", all, len(out))
}

// Listed names members for people.
func Listed(all []Member) string {
	return text.FewOf(", ", names(all), len(all))
}
