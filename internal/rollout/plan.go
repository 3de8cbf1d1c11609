package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Planned is what Plan decided.
type Planned struct {
	// Document is the rollout as it should be. One for another version than before
	// is a rollback: the desired version changes with it.
	Document  Document
	Decisions []pace.Decision
	// Offers and Withdrawals are for the document as it is; both are empty
	// while Document differs from it.
	Offers      []pace.Offer
	Withdrawals []string
	// Denied are members that only the budget of the cluster keeps from an offer.
	Denied []pace.Denied
	// Again is when to plan again although nothing has changed; zero: no need to.
	Again time.Time
}

// change returns the rollout as package pace sees it. It is a pure function, the only one that
// looks into reports of hosts for a plan.
func (d Document) change(s *State) pace.Change {
	c := pace.Change{
		ID: cluster.VersionChange, Tag: d.Version, Policy: d.Policy, Created: d.Started, Progress: d.Progress, Asked: s.Gate, Disturbs: true,
		Restores: d.RollbackOf != nil, Unfrozen: d.ignoresFreezes(), OverBudget: d.OverBudget != "", Wants: make([]pace.Want, 0, len(s.Members)),
		Words: pace.Words{
			Change: "the rollout of " + d.Version, Noun: "the rollout", Have: "run " + d.Version, Noted: "no member arrived",
			Resume: "jorc update resume", Approve: "jorc update promote", GiveUp: "jorc update give-up",
		},
	}
	if d.Stopped != nil {
		c.Stopped = d.Stopped.text()
	}
	if d.Previous == "" || d.Previous == d.Version {
		c.NoWayBack = "it is not rolled back, as no version is known that all members ran without a failure"
	}
	for i := range s.Members {
		m := &s.Members[i]
		c.Wants = append(c.Wants, pace.Want{
			Node: m.Node, Apart: m.apart(d.Policy), Has: m.Version == d.Version, Arrived: m.Arrived, Failure: m.reportedFailure(d),
			Granted: m.Grant.Tag == d.Version && !m.Grant.Since.Before(d.Started),
			Works:   m.Config.State == cluster.StateRunning && m.Config.Version == d.Version,
		})
	}
	return c
}

// situation returns what a plan is made of beside the rollout.
func (s *State) situation(now time.Time) pace.Situation {
	all := pace.Situation{
		Hosts: make([]pace.Host, 0, len(s.Members)), Places: s.Places, Freezes: s.Control.Freezes, Halted: s.Halted, AllHeld: s.AllHeld,
		Quiet: s.Quiet, PlannedSince: s.PlannedSince, Turns: s.Control.Change(now),
	}
	parts := make([]pace.Part, len(s.Members))
	for i := range s.Members {
		m := &s.Members[i]
		parts[i] = m.part()
		h := m.Host(now)
		h.Parts = parts[i : i+1 : i+1]
		all.Hosts = append(all.Hosts, h)
	}
	slices.SortFunc(all.Hosts, func(a, b pace.Host) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// Host is the member as changes of all kinds see it, without its parts of them.
func (m *Member) Host(now time.Time) pace.Host {
	return pace.Host{
		Node: m.Node, Zone: m.Zone, Roles: m.Roles, Up: m.Up(), DownSince: m.DownSince, Gone: m.Gone(m.Away, now), Service: m.Condition.OutOfService(false),
		Hold: shorten(m.Hold), HoldFile: shorten(m.HoldFile), Drained: m.drained(),
	}
}

// planner is what a document makes of a state.
type planner struct {
	*pace.Survey
	state State
	doc   Document
	now   time.Time
	// members are those of the survey, others the ones that no longer take part and have an
	// open grant.
	members, others []ranked
	counts          pace.Counts
}

// ranked is a member, and what the plan makes of it. The member is shared with the state
// and must not be changed.
type ranked struct {
	*Member
	in pace.Member
}

func newPlanner(d Document, s State, now time.Time) *planner {
	p := &planner{state: s, doc: d, now: now, Survey: pace.NewSurvey(s.situation(now), d.change(&s), now)}
	nodes := make(map[string]*Member, len(s.Members))
	for i := range s.Members {
		nodes[s.Members[i].Node] = &s.Members[i]
	}
	of := func(all []pace.Member) []ranked {
		same := make([]ranked, 0, len(all))
		for _, m := range all {
			same = append(same, ranked{nodes[m.Node], m})
		}
		return same
	}
	p.members, p.others, p.counts = of(p.Survey.Members), of(p.Survey.Others), p.Now
	return p
}

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

func (p *planner) in(want pace.State) []ranked {
	return p.with(func(m ranked) bool { return m.in.State == want })
}

// admitted returns the members that the step admits and that are as wanted.
func (p *planner) admitted(wanted func(ranked) bool) []ranked {
	s := p.Step()
	return p.with(func(m ranked) bool { return wanted(m) && s.Admits(m.in.Key) })
}

// failure returns why the member counts as failed in the rollout; empty: it does not.
func (p *planner) failure(m ranked) string { return m.in.Failure(&p.Change, p.now) }

// Plan decides the next state of a rollout and which hosts are offered a grant. It
// is a pure function: planning again on its document decides nothing more.
func Plan(d Document, s State, now time.Time) Planned {
	situation, change := s.situation(now), d.change(&s)
	one := pace.PlanOne(situation, change, now)
	if one.Next == nil {
		return Planned{Document: d, Offers: one.Offers, Withdrawals: one.Withdrawals, Denied: one.Denied, Again: one.Again}
	}
	next := Planned{Document: d, Decisions: one.Next.Decisions}
	next.Document.Progress = one.Next.Progress
	switch {
	case one.Next.Restore != "":
		return next.rollback(situation, s, one.Next, now)
	case one.Next.Stop != "":
		next.Document.Stopped = &Stop{Reason: one.Next.Stop, By: byJorc, Since: pace.Second(now)}
	case next.Document.Phase == pace.Done:
		next.Document.Finished = pace.Second(now)
	}
	return next
}

// rollback makes the document that takes the version back, whatever the window and the
// gates: all members that left the previous version are admitted, or one group after the other.
func (p Planned) rollback(situation pace.Situation, s State, fallen *pace.Next, now time.Time) Planned {
	d := p.Document
	policy := pace.Policy{
		MaxParallel: d.Policy.MaxParallel, MaxFailures: d.Policy.MaxFailures, MinHealthy: d.Policy.MinHealthy,
		NodeDeadline: d.Policy.NodeDeadline, ProgressDeadline: d.Policy.ProgressDeadline, OnFailure: pace.OnFailurePause,
		ZoneByZone: d.Policy.ZoneByZone, Order: slices.Clone(d.Policy.Order),
	}
	p.Document = Document{
		Spec: Spec{
			Version: d.Previous, Previous: d.Previous, Policy: policy, By: byJorc, Started: pace.Second(now),
			RollbackOf: &Rollback{Version: d.Version, Reason: fallen.Restore},
		},
		Progress: pace.Progress{Phase: pace.RollingBack, Since: pace.Second(now), Counts: fallen.Now},
	}
	last := &p.Decisions[len(p.Decisions)-1]
	last.Text = fmt.Sprintf("%s is rolled back to %s", d.Version, d.Previous)
	next := pace.TakeBack(situation, p.Document.change(&s), now) // no member may have left
	p.Document.Progress, p.Decisions = next.Progress, append(p.Decisions, next.Decisions...)
	if p.Document.Phase == pace.Done {
		p.Document.Finished = pace.Second(now)
	}
	return p
}

// names returns the names of members in order, as many as a decision lists.
func names(all []ranked) []string {
	list := make([]string, 0, len(all))
	for _, m := range all {
		list = append(list, m.Node)
	}
	return sortedFirst(list, pace.MostNames)
}

func sortedFirst(list []string, most int) []string {
	slices.Sort(list)
	return list[:min(len(list), most)]
}

// mostText bounds what is taken over from members, in bytes.
const mostText = 200

func shorten(s string) string { return text.Line(s, mostText) }
