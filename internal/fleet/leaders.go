package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Leaders reads who leads.
func (c *Cluster) Leaders(ctx context.Context) (cluster.Leaders, error) {
	e, err := c.leaders.Get(ctx)
	return e.Value, err
}

// SetCount says how many are to lead from now on.
func (c *Cluster) SetCount(ctx context.Context, n int) error {
	if n < 1 || n > cluster.MaxLeaders {
		return fmt.Errorf("%d leaders: %w: there can be 1 to %d", n, cluster.ErrInvalid, cluster.MaxLeaders)
	}
	_, err := c.leaders.Update(ctx, func(old kv.Entry[cluster.Leaders]) (cluster.Leaders, bool, error) {
		next := old.Value.Clone()
		next.Count = n
		return next, next.Count != old.Value.Count || !old.Exists, nil
	})
	if errors.Is(err, kv.ErrDamaged) {
		_, err = c.RepairLeaders(ctx, cluster.Leaders{Count: n})
	}
	return err
}

// RepairLeaders writes l in place of a document that is damaged; repaired is
// false when it is not.
func (c *Cluster) RepairLeaders(ctx context.Context, l cluster.Leaders) (repaired bool, err error) {
	old, err := c.leaders.Get(ctx)
	if !errors.Is(err, kv.ErrDamaged) {
		return false, err
	}
	_, err = c.leaders.CompareAndSwap(ctx, old, l)
	return err == nil, err
}

// Elect decides once who leads, as an Election does, and writes that if it is
// news: leaders that are no longer members retire, vacancies are filled. It returns
// who leads now, and until when places of retired leaders stay empty at most.
func (c *Cluster) Elect(ctx context.Context) (cluster.Leaders, error) {
	candidates, err := c.Candidates(ctx, nil)
	if err != nil {
		return cluster.Leaders{}, err
	}
	return c.DecideLeaders(ctx, candidates, cluster.NewElectorMemory(cluster.Timing{}), time.Now())
}

// DecideLeaders writes the decision about candidates of one who saw m, if it is news. It returns who leads now, or what
// kv.Doc.Update returns.
func (c *Cluster) DecideLeaders(ctx context.Context, candidates []cluster.Candidate, m *cluster.ElectorMemory, now time.Time) (cluster.Leaders, error) {
	e, err := c.leaders.Update(ctx, func(old kv.Entry[cluster.Leaders]) (cluster.Leaders, bool, error) {
		m.Observe(old.Value, candidates, now)
		next := cluster.Decide(old.Value, candidates, m.Situation(now), rand.IntN)
		return next, !next.Equal(old.Value), nil
	})
	return e.Value, err
}

// fillVacancies chooses leaders if there are vacancies. It does nothing if the
// token has no right to: an elector fills them then.
func (c *Cluster) fillVacancies(ctx context.Context) error {
	l, err := c.Leaders(ctx)
	if err == nil && l.Vacancies() > 0 {
		_, err = c.Elect(ctx)
	}
	if errors.Is(err, consul.ErrDenied) || errors.Is(err, kv.ErrDamaged) {
		return nil // electors fill it, and write again what is damaged
	}
	return err
}

// Filter reads the cluster's own filter, which selects the members for runs,
// elections and waits: the param cluster/filter, by default every member. It
// returns a *cluster.FilterError for a param that is not a filter.
func (c *Cluster) Filter(ctx context.Context) (*cluster.Filter, error) {
	e, err := c.profile.Get(ctx)
	if err != nil {
		return nil, err
	}
	return cluster.FilterOf(e.Value)
}

// Candidates reads the members as an election sees them: a member that f, the
// cluster's own filter, leaves out is not eligible; nil: it is read. A record that cannot be read
// does not keep other members from being chosen.
func (c *Cluster) Candidates(ctx context.Context, f *cluster.Filter) (_ []cluster.Candidate, err error) {
	if f == nil {
		if f, err = c.Filter(ctx); err != nil {
			return nil, err
		}
	}
	s, err := c.Load(ctx, cluster.NeedChecks|cluster.NeedProfile|f.Need())
	if errors.Is(err, consul.ErrDenied) && f.Need() == 0 {
		s, err = c.Load(ctx, cluster.NeedProfile) // then no host counts as healthy
	}
	if err == nil {
		err = s.Damaged[cluster.KeyLeaders]
	}
	if err != nil {
		return nil, err
	}
	return s.Candidates(f), nil
}

// CandidateOf is Candidates for one node, none if it is not a member. What is read does not grow with the number of members.
func (c *Cluster) CandidateOf(ctx context.Context, node string, f *cluster.Filter) ([]cluster.Candidate, error) {
	s, err := c.LoadHost(ctx, node, cluster.NeedChecks|cluster.NeedProfile|f.Need())
	if err == nil {
		err = cmp.Or(s.Damaged[cluster.KeyLeaders], s.Damaged[cluster.KeyProfile])
	}
	if err != nil {
		return nil, err
	}
	return s.Candidates(f), nil
}

// ElectionRules reads what the profile says of elections: the cluster's own filter, and how long a leader has to have been
// failing before another takes its place. wrong is why the default counts instead, t's.
func (c *Cluster) ElectionRules(ctx context.Context, t cluster.Timing) (f *cluster.Filter, grace time.Duration, wrong, err error) {
	e, err := c.profile.Get(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	grace, wrong = gracePeriodIn(e.Value, t.WithDefaults())
	f, err = cluster.FilterOf(e.Value)
	return f, grace, wrong, err
}

// LeadersDoc is the document of who leads.
func (c *Cluster) LeadersDoc() kv.Doc[cluster.Leaders] { return c.leaders }

// ConfirmStepDown writes that node knows that it was retired.
func (c *Cluster) ConfirmStepDown(ctx context.Context, node string) error {
	_, err := c.leaders.Update(ctx, func(old kv.Entry[cluster.Leaders]) (cluster.Leaders, bool, error) {
		next := old.Value.Clone()
		next.Forget(node)
		return next, old.Value.IsRetired(node), nil
	})
	return err
}

// MayBelieve reports whether a jorc agent of this cluster may run on node, so that
// it may act as leader until it learns that it is not.
func (c *Cluster) MayBelieve(ctx context.Context, node string) bool {
	checks, meta, err := c.client.HealthNode(ctx, node, consul.Query{})
	if err != nil || meta.Filtered {
		return true
	}
	return slices.ContainsFunc(checks, func(h *consul.HealthCheck) bool { return h.ServiceID == catalog.PresenceID(c.name) })
}

// gracePeriodIn returns the profile's grace, or t's where it says none, with
// cluster.ErrInvalid where it says none that is possible.
func gracePeriodIn(d profile.Document, t cluster.Timing) (time.Duration, error) {
	v, ok := d.Params[cluster.ParamLeaderGrace]
	if !ok || v.IsNull() {
		return t.Replace, nil
	}
	grace, err := parseGracePeriod(v, t)
	if err != nil {
		return t.Replace, fmt.Errorf("param %q: %w; %s counts until then", cluster.ParamLeaderGrace, err, t.Replace)
	}
	return grace, nil
}

// parseGracePeriod returns cluster.ErrInvalid for what is not a duration longer than a leader
// leads without Consul.
func parseGracePeriod(v profile.Value, t cluster.Timing) (time.Duration, error) {
	grace, err := time.ParseDuration(v.Raw())
	if err != nil || grace <= t.StepDown {
		return 0, fmt.Errorf("it must be a duration above %s, such as \"2m\": %w", t.StepDown, cluster.ErrInvalid)
	}
	return grace, nil
}
