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

// setFailing takes over which checks are critical, and reports whether that is news.
func (r *relevantChecks) setFailing(checks consul.HealthChecks) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = r.failing[:0]
	for _, c := range checks {
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
