package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// lookAgain is how often ElectPatiently reads the members.
const lookAgain = time.Second

// ElectPatiently is Elect by a caller who waits for what an Election would do
// later: a leader that fails is watched, and replaced when it has been failing
// for t.Replace without a break; the place of a retired one is filled when it
// must have noticed, so that t.Replace may be as short as one likes. waiting is told what is waited for, once each time that it
// is something else: the leaders that fail, then those that retired.
func (c *Cluster) ElectPatiently(ctx context.Context, t Timing, waiting func(failing, retired []string)) (Leaders, error) {
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
		failing, retired := l.unsettled(candidates)
		if len(failing)+len(retired) == 0 {
			return l, nil
		}
		if now := [2][]string{failing, retired}; !slices.Equal(now[0], before[0]) || !slices.Equal(now[1], before[1]) {
			waiting(failing, retired)
			before = now
		}
		d, ok := m.next(time.Now())
		if !ok || d > lookAgain {
			d = lookAgain
		}
		if err := concurrency.Sleep(ctx, d); err != nil {
			return l, err
		}
	}
}

// unsettled returns what time alone will change: leaders that fail while
// somebody better is there, and who retired while there is a vacancy.
func (l Leaders) unsettled(candidates []Candidate) (failing, retired []string) {
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
