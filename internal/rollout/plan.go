package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Kinds of decisions.
const (
	DecideAdmit    = "admitted"
	DecidePause    = "paused"
	DecideRollback = "rolled back"
	DecideDone     = "done"
	DecideForgive  = "failures accepted"

	DecideGate       = "step done" // and its gate begins
	DecideGatePassed = "gate passed"

	// These two are for rollouts that a command ended.
	DecideAbort     = "aborted"
	DecideSupersede = "superseded"
)

// DecisionKinds returns all kinds of decisions.
func DecisionKinds() []string {
	return []string{DecideAdmit, DecidePause, DecideRollback, DecideDone, DecideForgive, DecideGate, DecideGatePassed, DecideAbort, DecideSupersede}
}

// Decision is one thing that Plan decided, for people.
type Decision struct {
	Kind   string   `json:"kind"`
	Text   string   `json:"text"`
	Reason string   `json:"reason,omitempty"`
	Nodes  []string `json:"nodes,omitempty"` // that it is about, the first of them
	Count  int      `json:"count"`           // all of them
}

// Planned is what Plan decided.
type Planned struct {
	// Document is the rollout as it should be. One for another version than before
	// is a rollback: the desired version changes with it.
	Document  Document
	Decisions []Decision
	// Offers and Withdrawals are for the document as it is; both are empty
	// while Document differs from it.
	Offers      []Offer
	Withdrawals []string
	// Denied are members that only the budget of the cluster keeps from an offer.
	Denied []Denied
	// Again is when to plan again although nothing has changed; zero: no need to.
	Again time.Time
}

// Denied is a member that the budget of the cluster keeps from an offer.
type Denied struct {
	Node  string
	Limit pace.Limit
}

// Plan decides the next state of a rollout and which hosts are offered a grant. It
// is a pure function: planning again on its document decides nothing more.
func Plan(d Document, s State, now time.Time) Planned {
	p := newPlanner(d, s, now)
	if !d.Over() && d.Stopped == nil {
		p.decide()
	}
	if !p.doc.equal(d) {
		return Planned{Document: p.doc, Decisions: p.decisions}
	}
	r := Planned{Document: d, Again: p.next()}
	for _, m := range append(slices.Clone(p.members), p.others...) {
		if m.offered() && p.expired(m) {
			r.Withdrawals = append(r.Withdrawals, m.Node)
		}
	}
	r.Offers = p.offers()
	r.Denied = p.denied
	return r
}

// ranked is a member with its key and its progress. The member is shared with the
// state and must not be changed.
type ranked struct {
	*Member
	key      Key
	progress progress
}

// settled reports whether nothing more is expected of the member now.
func (r ranked) settled() bool {
	return r.progress != pending && r.progress != working
}

// planner is what a document makes of a state: the members that take part, in
// the order in which the version reaches them.
type planner struct {
	State
	doc     Document
	now     time.Time
	members []ranked
	// others no longer take part, but have an open grant.
	others    []ranked
	counts    Counts
	decisions []Decision
	denied    []Denied
}

func newPlanner(d Document, s State, now time.Time) *planner {
	p := &planner{State: s, doc: d, now: now, members: make([]ranked, 0, len(s.Members))}
	for i := range s.Members {
		m := &s.Members[i]
		r := ranked{m, d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone), m.progress(d, now)}
		switch {
		case m.takesPart(d.Policy):
			p.members = append(p.members, r)
			p.counts.add(r.progress)
		case m.granted():
			p.others = append(p.others, r)
		}
	}
	slices.SortFunc(p.members, func(a, b ranked) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.Node, b.Node)) })
	return p
}

func (c *Counts) add(s progress) {
	c.Members++
	switch s {
	case done:
		c.Done++
	case failed:
		c.Failed++
	case working:
		c.Working++
	case down:
		c.Down++
	case left:
		c.GivenUp++
	case held:
		c.Held++
	case pending:
		c.Pending++
	}
}

// reached is how many members nothing more is expected of.
func (c Counts) reached() int { return c.Done + c.Failed + c.GivenUp }

// with returns the members that are as wanted, in order.
func (p *planner) with(wanted func(ranked) bool) []ranked {
	var all []ranked
	for _, m := range p.members {
		if wanted(m) {
			all = append(all, m)
		}
	}
	return all
}

func (p *planner) in(want progress) []ranked {
	return p.with(func(m ranked) bool { return m.progress == want })
}

// names returns the names of members in order, as many as a decision lists.
func names(all []ranked) []string {
	list := make([]string, 0, len(all))
	for _, m := range all {
		list = append(list, m.Node)
	}
	return sortedFirst(list, mostNames)
}

func sortedFirst(list []string, most int) []string {
	slices.Sort(list)
	return list[:min(len(list), most)]
}

// mostNames bounds lists of members.
const mostNames = 10

func (p *planner) record(kind, reason string, about []ranked, format string, args ...any) {
	p.decisions = append(p.decisions, Decision{
		Kind: kind, Text: fmt.Sprintf(format, args...), Reason: reason, Nodes: names(about), Count: len(about),
	})
}

// decide changes the document: first what forbids, then what allows.
func (p *planner) decide() {
	if err := p.doc.Policy.Validate(); err != nil {
		p.stop("the policy in the document is damaged: "+err.Error()+": trigger again", nil)
		return
	}
	p.forgive()
	if p.doc.Paced() && p.broken() {
		return
	}
	switch {
	case len(p.members) == 0:
	case !p.doc.Paced() || p.doc.Phase == RollingBack:
		p.finish()
	default:
		p.advance()
	}
	if p.doc.Paced() {
		p.late()
	}
}

// finish ends a rollout in which all members are admitted, once no member is
// pending or at work.
func (p *planner) finish() {
	if p.doc.Phase == Waiting {
		p.enter(Batch, 1)
	}
	if p.quiet() && p.counts.Pending == 0 && !p.tooManyDown() && len(p.heldUp()) == 0 {
		p.end()
	}
}

// quiet reports whether no host is at work on a grant.
func (p *planner) quiet() bool {
	return p.counts.Working == 0 && !slices.ContainsFunc(p.others, func(m ranked) bool { return m.atWork(p.doc) })
}

// tooManyDown reports whether so many are down that nothing can be concluded
// from the others.
func (p *planner) tooManyDown() bool {
	if !p.doc.Paced() {
		return p.counts.Down > 0 && p.counts.Done == 0
	}
	allowed, _ := p.room()
	return p.counts.Down >= min(allowed, p.counts.Members)
}

func (p *planner) end() {
	p.leave()
	p.enter(Done, 0)
	p.doc.Group, p.doc.Finished = nil, stamp(p.now)
	var left []string
	if p.counts.Down > 0 {
		left = append(left, text.Count(p.counts.Down, "is down and follows when it is back", "are down and follow when they are back"))
	}
	if p.counts.Held > 0 {
		left = append(left, text.Count(p.counts.Held, "is held or drained and follows when that ends", "are held or drained and follow when that ends"))
	}
	p.record(DecideDone, strings.Join(left, "; "), p.in(failed), "%d of %d members run %s, %d failed", p.counts.Done, p.counts.Members, p.doc.Version, p.counts.Failed)
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
	if deadline == 0 || !p.mayProgress() || p.now.Sub(p.lastProgress()) <= deadline {
		return
	}
	p.stop(fmt.Sprintf("no member arrived for longer than %v; it waits for %s", p.doc.Policy.ProgressDeadline, strings.Join(p.waits(), "; ")),
		p.admitted(func(m ranked) bool { return !m.settled() }))
}

// mayProgress reports whether the time without progress counts now.
func (p *planner) mayProgress() bool {
	return !p.doc.Over() && p.doc.Stopped == nil && (p.doc.Gate == nil || p.doc.Gate.Passed) && !p.waitsForPromotion() && len(p.members) > 0 && p.inWindow() && !p.allFrozen()
}

// frozen returns the freeze that keeps the member from a grant.
func (p *planner) frozen(m *Member) (pace.Frozen, bool) {
	return p.doc.frozen(p.Control, m.Roles, p.now)
}

// allFrozen reports whether every member of which something is expected is frozen.
func (p *planner) allFrozen() bool {
	return !slices.ContainsFunc(p.members, func(m ranked) bool {
		_, frozen := p.frozen(m.Member)
		return !m.settled() && (m.progress == working || !frozen)
	})
}

// until returns when the member may no longer begin: its window ends, or a freeze begins.
// Zero: it always may.
func (p *planner) until(m *Member) (at time.Time) {
	if p.doc.Phase != RollingBack && pace.WindowsOpen(p.doc.Policy.Windows, p.now) {
		at = pace.WindowsChange(p.doc.Policy.Windows, p.now)
	}
	if !p.doc.ignoresFreezes() {
		at = pace.Earliest(at, p.Control.Freezes.Begins(m.Roles, p.now))
	}
	return at
}

func (p *planner) inWindow() bool {
	return p.doc.Phase == RollingBack || pace.WindowsOpen(p.doc.Policy.Windows, p.now)
}

func (p *planner) lastProgress() time.Time {
	moved := latest(p.doc.Since, p.doc.Gated, pace.WindowsOpenSince(p.doc.Policy.Windows, p.now), p.PlannedSince)
	if !p.doc.ignoresFreezes() {
		moved = latest(moved, p.Control.Freezes.Ended(p.now))
	}
	for _, m := range p.members {
		if m.Version == p.doc.Version && !m.Arrived.After(p.now) {
			moved = latest(moved, m.Arrived)
		}
	}
	return moved
}

// next is when time alone changes what Plan decides, as far as that is of
// interest: a window opens or closes, a hold or a freeze, an offer or a deadline ends.
func (p *planner) next() (at time.Time) {
	if p.doc.Phase == Aborted || !p.doc.Paced() {
		return time.Time{}
	}
	add := func(t time.Time) {
		if t.After(p.now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	add(p.Quiet)
	add(p.Control.Change(p.now))
	p.gateNext(add)
	add(pace.WindowsChange(p.doc.Policy.Windows, p.now))
	if d := time.Duration(p.doc.Policy.ProgressDeadline); d > 0 && p.mayProgress() {
		add(p.lastProgress().Add(d + time.Second))
	}
	for _, m := range p.members {
		switch {
		case m.offered():
			add(m.Grant.Since.Add(answerWithin))
		case m.unanswered():
			add(m.Grant.rested())
		case m.Grant.ID != "" && m.Grant.ID == m.Answer.Declined:
			add(m.Grant.Until)
		case m.progress == working && m.Answer.Open():
			if d := time.Duration(p.doc.Policy.NodeDeadline); d > 0 {
				add(latest(m.Answer.Since, p.doc.Started).Add(d + time.Second))
			}
			if !m.Up() && !m.DownSince.IsZero() {
				add(latest(m.DownSince, p.doc.Started).Add(downGrace + time.Second))
			}
		}
	}
	return at
}

// forgive accepts the failures that a resume found; failures that
// are fixed since leave no allowance for others.
func (p *planner) forgive() {
	failures := p.in(failed)
	if p.doc.Forgive {
		p.doc.Forgive, p.doc.Forgiven = false, len(failures)
		if len(failures) > 0 {
			p.record(DecideForgive, "the rollout was resumed", failures, "%s", text.Count(len(failures), "failure no longer counts", "failures no longer count"))
		}
	}
	p.doc.Forgiven = min(max(0, p.doc.Forgiven), len(failures))
}

// broken stops the rollout, or takes it back, when too many members failed.
func (p *planner) broken() bool {
	failures := p.in(failed)
	if len(failures) <= p.doc.Policy.MaxFailures+p.doc.Forgiven {
		return false
	}
	reason := fmt.Sprintf("%d failed, and the policy allows %d: %s", len(failures), p.doc.Policy.MaxFailures+p.doc.Forgiven,
		p.failureText(failures))
	p.fall(reason, failures)
	return true
}

// fall takes the rollout back where the policy says so, and pauses it otherwise.
func (p *planner) fall(reason string, failures []ranked) {
	previous := p.doc.Previous
	switch {
	case p.doc.Policy.OnFailure != OnFailureRollback || p.doc.RollbackOf != nil:
		p.stop(reason, failures)
	case previous == "" || previous == p.doc.Version:
		p.stop(reason+"; it is not rolled back, as no version is known that all members ran without a failure", failures)
	default:
		p.rollback(reason, failures)
	}
}

// failureText names the first of failures and why.
func (p *planner) failureText(failures []ranked) string {
	m := failures[0]
	text := m.Node + ": " + shorten(m.failure(p.doc, p.now))
	if len(failures) > 1 {
		text += fmt.Sprintf("; and %s", strings.Join(names(failures[1:]), ", "))
	}
	if len(failures) > mostNames+1 {
		text += ", …"
	}
	return text
}

// mostText bounds what is taken over from members, in bytes.
const mostText = 200

func shorten(s string) string { return text.Line(s, mostText) }

func (p *planner) stop(reason string, about []ranked) {
	p.doc.Stopped = &Stop{Reason: reason, By: byJorc, Since: stamp(p.now)}
	p.record(DecidePause, reason, about, "the rollout of %s is paused", p.doc.Version)
}

// rollback makes the document that takes the version back: all members that left
// the previous version are admitted, whatever the window.
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
	next := newPlanner(Document{
		Version: d.Previous, Previous: d.Previous, Policy: policy, By: byJorc, Started: stamp(p.now), Since: stamp(p.now),
		Phase: RollingBack, Counts: p.counts, RollbackOf: &Rollback{Version: d.Version, Reason: reason},
	}, p.State, p.now)
	next.doc.Forgiven = next.counts.Failed // they are why
	next.decisions = p.decisions
	next.record(DecideRollback, reason, about, "%s is rolled back to %s", d.Version, d.Previous)
	next.finish() // no member may have left
	*p = *next
}
