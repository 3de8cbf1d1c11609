package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
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

func (t Timing) withDefaults() Timing {
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

// electable reports whether the member can be given a place.
func (m Candidate) electable() bool { return m.Eligible && m.Unreadable == nil }

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
	next := l.clone()
	for _, r := range l.Retired {
		if since, ok := s.Retired[r.Node]; ok && s.Now.Sub(since) >= s.Timing.StepDown {
			next.forget(r.Node)
		}
	}
	by := map[string]Candidate{}
	healthy := 0
	for _, m := range members {
		by[m.Node] = m
		if m.electable() && !m.Failing && !next.Leads(m.Node) && !next.retired(m.Node) {
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
			if m.electable() && m.Failing == failing && !l.Leads(m.Node) && !l.retired(m.Node) {
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

// memory is what a maker of decisions saw so far, by its own clock. Losing it
// only makes things take longer.
type memory struct {
	timing  Timing
	failing map[string]time.Time
	retired map[string]time.Time
}

func newMemory(t Timing) *memory {
	return &memory{timing: t.withDefaults(), failing: map[string]time.Time{}, retired: map[string]time.Time{}}
}

// observe remembers what is new and forgets what is over.
func (m *memory) observe(l Leaders, members []Candidate, now time.Time) {
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

func (m *memory) situation(now time.Time) Situation {
	return Situation{Now: now, Failing: m.failing, Retired: m.retired, Timing: m.timing}
}

// next returns how long until time alone can change a decision; ok is false
// when it cannot.
func (m *memory) next(now time.Time) (d time.Duration, ok bool) {
	at := time.Time{}
	soonest := func(since map[string]time.Time, grace time.Duration) {
		for _, t := range since {
			if due := t.Add(grace); due.After(now) && (at.IsZero() || due.Before(at)) {
				at = due
			}
		}
	}
	soonest(m.failing, m.timing.Replace)
	soonest(m.retired, m.timing.StepDown)
	return at.Sub(now), !at.IsZero()
}

// electPoll is how often ElectAndWait reads the members.
const electPoll = time.Second

// ElectAndWait is Elect by a caller who waits for what an Election would do
// later: a leader that fails is watched, and replaced when it has been failing
// for t.Replace without a break; the place of a retired one is filled when it
// must have noticed, so that t.Replace may be as short as one likes. waiting is called with what is waited for, once each time that it
// is something else: the leaders that fail, then the ones that retired.
func (c *Cluster) ElectAndWait(ctx context.Context, t Timing, waiting func(failing, retired []string)) (Leaders, error) {
	m := newMemory(t)
	if t.Replace > 0 {
		m.timing.Replace = t.Replace
	}
	var before [2][]string
	for {
		candidates, err := c.candidates(ctx)
		if err != nil {
			return Leaders{}, err
		}
		l, err := c.decide(ctx, candidates, m, time.Now())
		if err != nil {
			return l, err
		}
		failing, retired := l.pendingChanges(candidates)
		if len(failing)+len(retired) == 0 {
			return l, nil
		}
		if now := [2][]string{failing, retired}; !slices.Equal(now[0], before[0]) || !slices.Equal(now[1], before[1]) {
			waiting(failing, retired)
			before = now
		}
		d, ok := m.next(time.Now())
		if !ok || d > electPoll {
			d = electPoll
		}
		if err := concurrency.Sleep(ctx, d); err != nil {
			return l, err
		}
	}
}

// pendingChanges returns what time alone will change: leaders that fail while
// a better member exists, and who retired while there is a vacancy.
func (l Leaders) pendingChanges(candidates []Candidate) (failing, retired []string) {
	better := slices.ContainsFunc(candidates, func(m Candidate) bool {
		return m.electable() && !m.Failing && !l.Leads(m.Node) && !l.retired(m.Node)
	})
	for _, m := range candidates {
		if better && m.Failing && l.Leads(m.Node) {
			failing = append(failing, m.Node)
		}
	}
	for _, r := range l.Retired {
		if len(l.Leader) < l.Count && slices.ContainsFunc(candidates, func(m Candidate) bool { return m.electable() && !l.Leads(m.Node) }) {
			retired = append(retired, r.Node)
		}
	}
	return failing, retired
}

// ParamLeaderGrace is the param of the profile that says how long a leader has to
// have been failing before another takes its place: a duration such as "2m",
// longer than a leader continues without Consul.
const ParamLeaderGrace = "cluster/leader-grace"

// LeaderGracePeriod reads how long a leader has to have been failing before another
// takes its place. It returns ErrInvalid for a param that does not say so, with
// the default, or what reading the profile returns.
func (c *Cluster) LeaderGracePeriod(ctx context.Context) (time.Duration, error) {
	e, err := c.profile.Get(ctx)
	if err != nil {
		return 0, err
	}
	return gracePeriodIn(e.Value, Timing{}.withDefaults())
}

// gracePeriodIn returns the profile's grace, or t's where it says none, with
// ErrInvalid where it says none that is possible.
func gracePeriodIn(d profile.Document, t Timing) (time.Duration, error) {
	v, ok := d.Params[ParamLeaderGrace]
	if !ok || v.IsNull() {
		return t.Replace, nil
	}
	grace, err := parseGracePeriod(v, t)
	if err != nil {
		return t.Replace, fmt.Errorf("param %q: %w; %s counts until then", ParamLeaderGrace, err, t.Replace)
	}
	return grace, nil
}

// parseGracePeriod returns ErrInvalid for what is not a duration longer than a leader
// leads without Consul.
func parseGracePeriod(v profile.Value, t Timing) (time.Duration, error) {
	grace, err := time.ParseDuration(v.Raw())
	if err != nil || grace <= t.StepDown {
		return 0, fmt.Errorf("it must be a duration above %s, such as \"2m\": %w", t.StepDown, ErrInvalid)
	}
	return grace, nil
}

// relevantChecks tells which news of failing checks an election has to read. While
// all places are filled and no leader fails it is only about leaders: in a large
// cluster checks of others come and go all the time, and to look is to read all
// members.
type relevantChecks struct {
	mu      sync.Mutex
	leaders Leaders
	failing []string // "node check notes", in order
	last    string   // what mattered of it when it was asked
}

// setLeaders takes over who leads. It is always news.
func (r *relevantChecks) setLeaders(l Leaders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaders = l
	r.last = r.relevant()
}

// setFailing takes over which checks are critical, and reports whether that is
// news. Maintenance that jorc set and ends by itself does not matter to elections.
func (r *relevantChecks) setFailing(checks consul.HealthChecks) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = r.failing[:0]
	for _, c := range checks {
		if consul.IsMaintenance(c.CheckID) && consul.StartedByJorc(c.Notes) {
			continue
		}
		r.failing = append(r.failing, c.Node+" "+c.CheckID+" "+c.Notes)
	}
	slices.Sort(r.failing)
	now := r.relevant()
	news := now != r.last
	r.last = now
	return news
}

// relevant is what of the failing checks matters, with r.mu held.
func (r *relevantChecks) relevant() string {
	of := slices.DeleteFunc(slices.Clone(r.failing), func(check string) bool {
		node, _, _ := strings.Cut(check, " ")
		return !r.leaders.Leads(node)
	})
	if len(of) > 0 || r.leaders.Vacancies() > 0 || len(r.leaders.Retired) > 0 {
		of = r.failing // another leader is wanted: all checks count
	}
	return strings.Join(of, "\n")
}
