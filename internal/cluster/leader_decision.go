package cluster

import (
	"slices"
	"time"
)

// Timing says how long leaders are waited for. The zero value is good; all
// members of a cluster use the same.
type Timing struct {
	// StepDown is how long a leader that cannot reach Consul continues to lead, and
	// how long the place of a retired leader stays empty. Default: DefaultStepDown.
	StepDown time.Duration
	// Replace is how long a leader has to have been failing before another
	// takes its place; longer than StepDown. Default 30 s.
	Replace time.Duration
}

// DefaultStepDown is how long leaders of clusters continue without Consul.
const DefaultStepDown = 10 * time.Second

// WithDefaults returns t with what it does not say.
func (t Timing) WithDefaults() Timing {
	if t.StepDown <= 0 {
		t.StepDown = DefaultStepDown
	}
	if t.Replace <= t.StepDown {
		t.Replace = 3 * t.StepDown
	}
	return t
}

// Candidate is a member as an election sees it.
type Candidate struct {
	Node     string
	Eligible bool
	Failing  bool // its host or its agent is down, or a check of it critical; maintenance set by jorc does not count
	// Unreadable is why the member's record cannot be read: whether it may lead
	// is not known, so it keeps its place and gets none.
	Unreadable error
}

// Electable reports whether the member can be given a place.
func (m Candidate) Electable() bool { return m.Eligible && m.Unreadable == nil }

// Situation is when a decision is made, and what its maker saw until then.
type Situation struct {
	Now     time.Time
	Failing map[string]time.Time // leaders → since when they have been failing without a break
	Retired map[string]time.Time // retired leaders → when that was seen first
	Timing  Timing
}

// Decide returns the next leaders. Leaders stay while they are eligible members
// and not failing; one that has been failing for too long is retired if a healthy
// member can replace it, and one that is no longer a member, or not eligible, at
// once. The places of retired leaders stay empty until they must have noticed.
// Vacancies go to eligible members, healthy ones first, at random by pick, which
// returns a number below its argument.
func Decide(l Leaders, members []Candidate, s Situation, pick func(int) int) Leaders {
	next := l.Clone()
	for _, r := range l.Retired {
		if since, ok := s.Retired[r.Node]; ok && s.Now.Sub(since) >= s.Timing.StepDown {
			next.Forget(r.Node)
		}
	}
	by := map[string]Candidate{}
	healthy := 0
	for _, m := range members {
		by[m.Node] = m
		if m.Electable() && !m.Failing && !next.Leads(m.Node) && !next.IsRetired(m.Node) {
			healthy++
		}
	}
	for _, node := range l.Leader {
		m, member := by[node]
		since, failing := s.Failing[node]
		overdue := m.Failing && failing && s.Now.Sub(since) >= s.Timing.Replace
		switch {
		case !member || !m.Eligible:
			next.retire(node, s.Now)
		case overdue && healthy > 0:
			next.retire(node, s.Now)
			healthy--
		}
	}
	next.shrink(by, s.Now)
	next.fill(members, pick)
	return next
}

// shrink retires leaders beyond the count: the failing first, then the latest.
func (l *Leaders) shrink(by map[string]Candidate, now time.Time) {
	for _, onlyFailing := range []bool{true, false} {
		for _, node := range slices.Backward(slices.Clone(l.Leader)) {
			if len(l.Leader) > l.Count && (by[node].Failing || !onlyFailing) {
				l.retire(node, now)
			}
		}
	}
}

// fill chooses leaders for the vacancies.
func (l *Leaders) fill(members []Candidate, pick func(int) int) {
	for _, failing := range []bool{false, true} {
		var free []string
		for _, m := range members {
			if m.Electable() && m.Failing == failing && !l.Leads(m.Node) && !l.IsRetired(m.Node) {
				free = append(free, m.Node)
			}
		}
		slices.Sort(free)
		for l.Vacancies() > 0 && len(free) > 0 {
			i := pick(len(free))
			l.Leader = append(l.Leader, free[i])
			free = slices.Delete(free, i, i+1)
		}
	}
}

// ElectorMemory is what a maker of decisions saw so far, by its own clock. Losing it
// only makes things take longer.
type ElectorMemory struct {
	Timing  Timing
	failing map[string]time.Time
	retired map[string]time.Time
}

// NewElectorMemory returns the memory of one that has seen nothing.
func NewElectorMemory(t Timing) *ElectorMemory {
	return &ElectorMemory{Timing: t.WithDefaults(), failing: map[string]time.Time{}, retired: map[string]time.Time{}}
}

// Observe remembers what is new and forgets what is over.
func (m *ElectorMemory) Observe(l Leaders, members []Candidate, now time.Time) {
	failing, retired := map[string]bool{}, map[string]bool{}
	for _, c := range members {
		failing[c.Node] = c.Failing && l.Leads(c.Node)
	}
	for _, r := range l.Retired {
		retired[r.Node] = true
	}
	keep(m.failing, failing, now)
	keep(m.retired, retired, now)
}

func keep(since map[string]time.Time, is map[string]bool, now time.Time) {
	for node, yes := range is {
		if _, known := since[node]; yes && !known {
			since[node] = now
		}
	}
	for node := range since {
		if !is[node] {
			delete(since, node)
		}
	}
}

// Situation is what a decision at now is made of.
func (m *ElectorMemory) Situation(now time.Time) Situation {
	return Situation{Now: now, Failing: m.failing, Retired: m.retired, Timing: m.Timing}
}

// Next returns how long until time alone can change a decision; ok is false
// when it cannot.
func (m *ElectorMemory) Next(now time.Time) (d time.Duration, ok bool) {
	at := time.Time{}
	soonest := func(since map[string]time.Time, grace time.Duration) {
		for _, t := range since {
			if due := t.Add(grace); due.After(now) && (at.IsZero() || due.Before(at)) {
				at = due
			}
		}
	}
	soonest(m.failing, m.Timing.Replace)
	soonest(m.retired, m.Timing.StepDown)
	return at.Sub(now), !at.IsZero()
}

// ParamLeaderGrace is the param of the profile that says how long a leader has to
// have been failing before another takes its place: a duration such as "2m",
// longer than a leader continues without Consul.
const ParamLeaderGrace = "cluster/leader-grace"
