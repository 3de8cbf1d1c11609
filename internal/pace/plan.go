// Package pace decides which hosts of a cluster may be disturbed now. It has the policy of a change, the order
// in which it reaches hosts, its steps, gates and windows, the freezes and the budget of a cluster; Plan decides about all
// changes at once, and Explain says why a host waits. It is pure: no Consul, no clock, no
// goroutine, and it never reads what hosts report (docs/adr/0020-one-plan.md).
package pace

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/text"
)

// Decision is one thing that a plan decided about hosts.
type Decision struct {
	event.Decision
	Nodes []string `json:"nodes,omitempty"` // that it is about, the first of them
	Count int      `json:"count"`           // all of them
}

// Next is what a change becomes. There are no offers of it before that is written.
type Next struct {
	Progress
	// Stop is why it is to be paused, and Restore why it is to be taken back; empty: it is not.
	Stop, Restore string
	Now           Counts
	Decisions     []Decision
}

// Offer says that a host is to be offered a grant.
type Offer struct {
	Node  string
	Tries int // offers that it did not answer before
	// Until is when the host may no longer begin: the end of the window, or the beginning
	// of a freeze. Zero: never.
	Until time.Time
	Early bool // it comes before its turn, and begins no step
}

// Denied is a host that only the budget of the cluster keeps from an offer.
type Denied struct {
	Node  string
	Limit Limit
}

// Planned is what was decided of one change.
type Planned struct {
	// Next is nil while the change stays as it is. Offers and Withdrawals are of a change that
	// stays as it is.
	Next        *Next
	Offers      []Offer
	Withdrawals []string
	Denied      []Denied
	// Crowded: hosts that are out of service, and would take a grant, keep all others from one.
	Crowded bool
	// Again is when time alone changes what is decided; zero: it does not.
	Again time.Time
}

// Plan decides the next state of each change, by its id, and which hosts are
// offered a grant. Places go to what restores first, then to the change with the fewest open
// grants, then to the oldest; one that cannot proceed blocks no other. It is a pure function: planning again
// on what it returns decides nothing more.
func Plan(s Situation, now time.Time) map[string]Planned {
	planned := make(map[string]Planned, len(s.Changes))
	for v, p := range inTurn(s, now) {
		planned[v.ID] = p
	}
	return planned
}

// inTurn returns what is decided of each change, in the order in which they get places.
func inTurn(s Situation, now time.Time) iter.Seq2[*Survey, Planned] {
	type turn struct {
		*Survey
		Demand
	}
	s.freezing = newFreezing(s.Freezes, now)
	all, surveys := make([]turn, 0, len(s.Changes)), make([]*Survey, 0, len(s.Changes))
	for i := range s.Changes {
		v := NewSurvey(s, s.Changes[i], now)
		all, surveys = append(all, turn{v, v.demand()}), append(surveys, v)
	}
	open := newLeases(s.Places, surveys)
	slices.SortStableFunc(all, func(a, b turn) int { return a.Demand.Compare(b.Demand) })
	places := s.Places.Clone()
	return func(yield func(*Survey, Planned) bool) {
		for _, t := range all {
			v := t.Survey
			v.Places = v.places(places)
			if v.Lease && !v.OverBudget {
				v.leases = open
			}
			p := v.Plan()
			if !yield(v, p) {
				return
			}
			for _, o := range p.Offers {
				v.Places.Take(o.Node)
				if v.Lease {
					open.take(o.Node)
				}
			}
		}
	}
}

// PlanOne is Plan of a single change.
func PlanOne(s Situation, c Change, now time.Time) Planned {
	return NewSurvey(s, c, now).Plan()
}

// TakeBack is what c, a change that takes another one back, begins with: the failures that
// it is made for do not count, and it ends at once where no host has anything to take back.
func TakeBack(s Situation, c Change, now time.Time) Next {
	v := NewSurvey(s, c, now)
	v.Forgiven = v.Now.Failed
	v.goBack()
	return Next{Progress: v.Progress, Now: v.Now, Decisions: v.decisions}
}

// demand is what decides when the change gets places.
func (v *Survey) demand() Demand {
	d := Demand{Change: v.ID, Restores: v.Restores || v.Phase == RollingBack, Created: v.Created}
	for m := range v.everyone() {
		if m.Part.Granted() {
			d.Open++
		}
	}
	return d
}

// Plan decides about the change alone.
func (v *Survey) Plan() Planned {
	before := v.Progress
	if !v.Over() && v.Stopped == "" && !v.ByTag {
		v.decide()
	}
	if v.stop != "" || v.restore != "" || len(v.decisions) > 0 || !v.Progress.equal(before) {
		return Planned{Next: &Next{Progress: v.Progress, Stop: v.stop, Restore: v.restore, Now: v.Now, Decisions: v.decisions}}
	}
	p := Planned{Again: v.again()}
	for m := range v.everyone() {
		if m.Part.Offered() && v.expired(m) {
			p.Withdrawals = append(p.Withdrawals, m.Node)
		}
	}
	p.Offers = v.Offers()
	p.Denied, p.Crowded = v.denied, v.crowded
	if v.crowded && !v.CrowdedSince.IsZero() && v.now.Before(v.CrowdedSince.Add(repairAfter)) {
		p.Again = Earliest(p.Again, v.CrowdedSince.Add(repairAfter))
	}
	return p
}

// names returns the names of members in order, as many as a decision lists.
func names(all []Member) []string {
	list := make([]string, 0, len(all))
	for _, m := range all {
		list = append(list, m.Node)
	}
	slices.Sort(list)
	return list[:min(len(list), MostNames)]
}

// MostNames bounds lists of hosts in texts.
const MostNames = 10

func (v *Survey) record(kind, reason string, about []Member, format string, args ...any) {
	v.decisions = append(v.decisions, Decision{event.Decision{Kind: kind, Text: fmt.Sprintf(format, args...), Reason: reason}, names(about), len(about)})
}

// decide changes the progress: first what forbids, then what allows.
func (v *Survey) decide() {
	if err := v.Policy.Validate(); err != nil {
		v.pause("the policy in the document is damaged: "+err.Error()+": trigger again", nil)
		return
	}
	v.forgive()
	if v.Paced() && v.broken() {
		return
	}
	switch {
	case len(v.Members) == 0:
	case v.Phase == RollingBack:
		v.goBack()
	case !v.Paced():
		v.finish()
	default:
		v.advance()
	}
	if v.Paced() {
		v.late()
	}
}

// stops reports whether it is decided that the change is to stop.
func (v *Survey) stops() bool { return v.stop != "" || v.restore != "" }

// finish ends a change in which all members are admitted, once no member is pending or at
// work.
func (v *Survey) finish() {
	if v.Phase == Waiting {
		v.enter(Batch, 1)
	}
	if v.quiet() && v.Now.Waiting == 0 && !v.TooManyDown() && len(v.HeldUp()) == 0 {
		v.end()
	}
}

// goBack moves what is taken back on: one group after the other where the policy says so.
func (v *Survey) goBack() {
	if last, ok := v.last(); ok && v.backByGroup() {
		if !v.SettledStep() {
			return
		}
		if first, found := v.firstUnsettled(last, RollingBack, 0); found {
			v.open(RollingBack, 0, first)
			return
		}
	}
	v.finish()
}

func (v *Survey) end() {
	v.leave()
	v.enter(Done, 0)
	v.Group = nil
	var left []string
	if v.Now.Down > 0 {
		left = append(left, text.Count(v.Now.Down, "is down and follows when it is back", "are down and follow when they are back"))
	}
	if v.Now.Held > 0 {
		left = append(left, text.Count(v.Now.Held, "is held or drained and follows when that ends", "are held or drained and follow when that ends"))
	}
	v.record(event.ChangeDone, strings.Join(left, "; "), v.In(Failed), "%d of %d members %s, %d failed", v.Now.Done, v.Now.Members, v.Words.Have, v.Now.Failed)
}

// Second is a time as documents have it: in seconds, as hosts report theirs.
func Second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// enter changes the phase.
func (v *Survey) enter(phase Phase, batch int) {
	if v.Phase != phase || v.Batch != batch {
		v.Phase, v.Batch, v.Since = phase, batch, Second(v.now)
		v.Counts = v.Now
	}
}

// late pauses a change in which nothing moves.
func (v *Survey) late() {
	deadline := time.Duration(v.Policy.ProgressDeadline)
	if deadline == 0 || !v.mayProgress() || v.now.Sub(v.LastProgress()) <= deadline {
		return
	}
	v.pause(fmt.Sprintf("%s for longer than %v; it waits for %s", v.Words.Noted, v.Policy.ProgressDeadline, strings.Join(v.Waits(), "; ")),
		v.Admitted(func(m Member) bool { return !m.Settled() }))
}

// mayProgress reports whether the time without progress counts now.
func (v *Survey) mayProgress() bool {
	return !v.Over() && v.Stopped == "" && !v.stops() && (v.Gate == nil || v.Gate.Passed) && !v.WaitsForApproval() && len(v.Members) > 0 && v.InWindow() && !v.allFrozen()
}

// again is when time alone changes what is decided, as far as that is of interest: a
// window opens or closes, a hold or a freeze, an offer or a deadline ends.
func (v *Survey) again() (at time.Time) {
	if v.Phase == Aborted || !v.Paced() {
		return time.Time{}
	}
	add := func(t time.Time) {
		if t.After(v.now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	add(v.Quiet)
	add(v.Turns)
	if v.Gate != nil {
		add(v.Policy.GateNext(*v.Gate))
	}
	add(v.windowChange())
	if d := time.Duration(v.Policy.ProgressDeadline); d > 0 && v.mayProgress() {
		add(v.LastProgress().Add(d + time.Second))
	}
	for _, m := range v.Members {
		switch {
		case m.Part.Offered():
			add(m.Part.Since.Add(AnswerWithin))
		case m.Part.Silent():
			add(m.Part.Rested())
		case m.Part.Declined:
			add(m.Part.Until)
		case m.State == Working && m.Part.Open():
			if d := time.Duration(v.Policy.NodeDeadline); d > 0 {
				add(Latest(m.Part.Accepted, v.Created).Add(d + time.Second))
			}
			if !m.Up && !m.DownSince.IsZero() {
				add(Latest(m.DownSince, v.Created).Add(downGrace + time.Second))
			}
		}
	}
	return at
}

// forgive accepts the failures that a resume found; failures that are fixed since leave no
// allowance for others.
func (v *Survey) forgive() {
	failures := v.In(Failed)
	if v.Forgive {
		v.Forgive, v.Forgiven = false, len(failures)
		if len(failures) > 0 {
			v.record(event.ChangeFailuresAccepted, v.Words.Noun+" was resumed", failures, "%s", text.Count(len(failures), "failure no longer counts", "failures no longer count"))
		}
	}
	v.Forgiven = min(max(0, v.Forgiven), len(failures))
}

// broken stops the change, or takes it back, when too many members failed.
func (v *Survey) broken() bool {
	failures := v.In(Failed)
	if len(failures) <= v.Policy.MaxFailures+v.Forgiven {
		return false
	}
	v.fall(fmt.Sprintf("%d failed, and the policy allows %d: %s", len(failures), v.Policy.MaxFailures+v.Forgiven, v.failureText(failures)), failures)
	return true
}

// fall takes the change back where the policy says so, and pauses it otherwise.
func (v *Survey) fall(reason string, failures []Member) {
	switch {
	case v.Policy.OnFailure != OnFailureRollback || v.Restores:
		v.pause(reason, failures)
	case v.NoWayBack != "":
		v.pause(reason+"; "+v.NoWayBack, failures)
	default:
		v.restore = reason
		v.record(event.ChangeTakenBack, reason, failures, "")
	}
}

// failureText names the first of failures and why.
func (v *Survey) failureText(failures []Member) string {
	m := failures[0]
	said := m.Node + ": " + text.Line(m.Failure(&v.Change, v.now), mostLine)
	if len(failures) > 1 {
		said += "; and " + strings.Join(names(failures[1:]), ", ")
	}
	if len(failures) > MostNames+1 {
		said += ", …"
	}
	return said
}

func (v *Survey) pause(reason string, about []Member) {
	v.stop = reason
	v.record(event.ChangeStopped, reason, about, "%s is paused", v.Words.Change)
}
