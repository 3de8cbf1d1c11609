package leaders

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/fleet"
)

// electPoll is how often ElectAndWait reads the members.
const electPoll = time.Second

// ElectAndWait is fleet.Cluster.Elect by a caller who waits for what an Election would do
// later: a leader that fails is watched, and replaced when it has been failing
// for t.Replace without a break; the place of a retired one is filled when it
// must have noticed, so that t.Replace may be as short as one likes. waiting is called with what is waited for, once each time that it
// is something else: the leaders that fail, then the ones that retired.
func ElectAndWait(ctx context.Context, c *fleet.Cluster, t cluster.Timing, waiting func(failing, retired []string)) (cluster.Leaders, error) {
	m := cluster.NewElectorMemory(t)
	if t.Replace > 0 {
		m.Timing.Replace = t.Replace
	}
	var before [2][]string
	for {
		candidates, err := c.Candidates(ctx, nil)
		if err != nil {
			return cluster.Leaders{}, err
		}
		l, err := c.DecideLeaders(ctx, candidates, m, time.Now())
		if err != nil {
			return l, err
		}
		failing, retired := pending(l, candidates)
		if len(failing)+len(retired) == 0 {
			return l, nil
		}
		if now := [2][]string{failing, retired}; !slices.Equal(now[0], before[0]) || !slices.Equal(now[1], before[1]) {
			waiting(failing, retired)
			before = now
		}
		d, ok := m.Next(time.Now())
		if !ok || d > electPoll {
			d = electPoll
		}
		if err := concurrency.Sleep(ctx, d); err != nil {
			return l, err
		}
	}
}

// pending returns what time alone will change: leaders that fail while
// a better member exists, and who retired while there is a vacancy.
func pending(l cluster.Leaders, candidates []cluster.Candidate) (failing, retired []string) {
	better := slices.ContainsFunc(candidates, func(m cluster.Candidate) bool {
		return m.Electable() && !m.Failing && !l.Leads(m.Node) && !l.IsRetired(m.Node)
	})
	for _, m := range candidates {
		if better && m.Failing && l.Leads(m.Node) {
			failing = append(failing, m.Node)
		}
	}
	for _, r := range l.Retired {
		if len(l.Leader) < l.Count && slices.ContainsFunc(candidates, func(m cluster.Candidate) bool { return m.Electable() && !l.Leads(m.Node) }) {
			retired = append(retired, r.Node)
		}
	}
	return failing, retired
}

// GracePeriod reads how long a leader of c has to have been failing before another takes its place. It returns the default with
// cluster.ErrInvalid for a param that does not say so, or what reading the profile returns.
func GracePeriod(ctx context.Context, c *fleet.Cluster) (time.Duration, error) {
	_, grace, wrong, err := c.ElectionRules(ctx, cluster.Timing{})
	return grace, cmp.Or(err, wrong)
}
