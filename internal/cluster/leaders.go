package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// ParamEligible is the param that makes members eligible to lead, or not: their
// own, that of their roles, or that of the cluster, in this order. Without it all
// are, but managers: what the cluster's params say does not make one eligible.
const ParamEligible = "cluster/leader-eligible"

// Leaders says who leads and who manages: the one truth about both.
type Leaders struct {
	Leader  []string `json:"leader,omitempty"`
	Manager []string `json:"manager,omitempty"`
	// Count is how many are to lead.
	Count int `json:"count"`
	// Retired no longer lead, but may not know it yet: their places stay empty
	// for as long as they may believe otherwise.
	Retired []Retired `json:"retired,omitempty"`
}

// LeadersDocument is who leads, as commands answer it.
type LeadersDocument struct {
	Leaders  []string `json:"leaders"`
	Count    int      `json:"count"`
	Managers []string `json:"managers"`
	Retired  []string `json:"retired"` // led until now, and may not know yet that they no longer do
}

// Document returns who leads as commands answer it.
func (l Leaders) Document() LeadersDocument {
	d := LeadersDocument{Leaders: append([]string{}, l.Leader...), Count: l.Count, Managers: append([]string{}, l.Manager...), Retired: []string{}}
	for _, r := range l.Retired {
		d.Retired = append(d.Retired, r.Node)
	}
	return d
}

// Retired is a former leader.
type Retired struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"` // for people; who waits uses a clock of its own
}

// UnmarshalJSON refuses what cannot be who leads: readers do not believe every
// text that a token with the right to write the key can put there.
func (l *Leaders) UnmarshalJSON(data []byte) error {
	type plain Leaders
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if p.Count < 0 || p.Count > MaxLeaders {
		return fmt.Errorf("%d leaders: there can be up to %d", p.Count, MaxLeaders)
	}
	seen := map[string]bool{}
	for _, node := range p.Leader {
		if CheckNode(node) != nil || seen[node] {
			return errors.New("a leader whose name is not usable, or twice")
		}
		seen[node] = true
	}
	*l = Leaders(p)
	return nil
}

// Vacancies is how many leaders can be chosen now.
func (l Leaders) Vacancies() int { return max(0, l.Count-len(l.Leader)-len(l.Retired)) }

// Leads reports whether node is a leader.
func (l Leaders) Leads(node string) bool { return slices.Contains(l.Leader, node) }

// IsRetired reports whether node retired, and its place is still empty.
func (l Leaders) IsRetired(node string) bool {
	return slices.ContainsFunc(l.Retired, func(r Retired) bool { return r.Node == node })
}

// rolesOf returns own with the roles that are derived behind them.
func (l Leaders) rolesOf(node string, own []string) []string {
	roles := slices.Clone(own)
	worker := true
	for _, r := range []struct {
		name string
		has  bool
	}{{RoleManager, slices.Contains(l.Manager, node)}, {RoleLeader, l.Leads(node)}} {
		if r.has && !slices.Contains(roles, r.name) {
			roles = append(roles, r.name)
		}
		worker = worker && !slices.Contains(roles, r.name)
	}
	if worker {
		roles = append(roles, RoleWorker)
	}
	return roles
}

// Managers returns who manages, in order: the nodes that this document names, and
// the members whose records give them the role.
func (l Leaders) Managers(members map[string]Record) []string {
	all := slices.Clone(l.Manager)
	for node, r := range members {
		if slices.Contains(r.Roles, RoleManager) {
			all = append(all, node)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (l Leaders) clone() Leaders {
	l.Leader, l.Manager, l.Retired = slices.Clone(l.Leader), slices.Clone(l.Manager), slices.Clone(l.Retired)
	return l
}

func (l *Leaders) setManager(node string) {
	if !slices.Contains(l.Manager, node) {
		l.Manager = append(l.Manager, node)
	}
}

// retire takes node's leadership; its place stays empty for a while.
func (l *Leaders) retire(node string, now time.Time) {
	l.Leader = slices.DeleteFunc(l.Leader, func(n string) bool { return n == node })
	if !l.IsRetired(node) {
		l.Retired = append(l.Retired, Retired{Node: node, Since: now.UTC().Truncate(time.Second)})
	}
}

// forget removes node from the retired leaders.
func (l *Leaders) forget(node string) {
	l.Retired = slices.DeleteFunc(l.Retired, func(r Retired) bool { return r.Node == node })
}

// without returns l without node; believes says that node may think that it
// leads.
func (l Leaders) without(node string, believes bool) (next Leaders, changed bool) {
	next = l.clone()
	next.Manager = slices.DeleteFunc(next.Manager, func(n string) bool { return n == node })
	switch {
	case l.Leads(node):
		next.retire(node, time.Now())
		if !believes {
			next.forget(node)
		}
	case !believes:
		next.forget(node)
	}
	return next, !next.Equal(l)
}

// Equal reports whether both say the same, whenever members retired.
func (l Leaders) Equal(o Leaders) bool {
	return slices.Equal(l.Leader, o.Leader) && slices.Equal(l.Manager, o.Manager) && l.Count == o.Count &&
		slices.EqualFunc(l.Retired, o.Retired, func(a, b Retired) bool { return a.Node == b.Node })
}

// Leaders reads who leads.
func (c *Cluster) Leaders(ctx context.Context) (Leaders, error) {
	e, err := c.leaders.Get(ctx)
	return e.Value, err
}

// SetCount says how many are to lead from now on.
func (c *Cluster) SetCount(ctx context.Context, n int) error {
	if n < 1 || n > MaxLeaders {
		return fmt.Errorf("%d leaders: %w: there can be 1 to %d", n, ErrInvalid, MaxLeaders)
	}
	_, err := c.leaders.Update(ctx, func(old kv.Entry[Leaders]) (Leaders, bool, error) {
		next := old.Value.clone()
		next.Count = n
		return next, next.Count != old.Value.Count || !old.Exists, nil
	})
	if errors.Is(err, kv.ErrDamaged) {
		_, err = c.RepairLeaders(ctx, Leaders{Count: n})
	}
	return err
}

// RepairLeaders writes l in place of a document that is damaged; repaired is
// false when it is not.
func (c *Cluster) RepairLeaders(ctx context.Context, l Leaders) (repaired bool, err error) {
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
func (c *Cluster) Elect(ctx context.Context) (Leaders, error) {
	candidates, err := c.Candidates(ctx, nil)
	if err != nil {
		return Leaders{}, err
	}
	return c.DecideLeaders(ctx, candidates, NewElectorMemory(Timing{}), time.Now())
}

// DecideLeaders writes the decision about candidates of one who saw m, if it is news. It returns who leads now, or what
// kv.Doc.Update returns.
func (c *Cluster) DecideLeaders(ctx context.Context, candidates []Candidate, m *ElectorMemory, now time.Time) (Leaders, error) {
	e, err := c.leaders.Update(ctx, func(old kv.Entry[Leaders]) (Leaders, bool, error) {
		m.Observe(old.Value, candidates, now)
		next := Decide(old.Value, candidates, m.situation(now), rand.IntN)
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
// returns a *FilterError for a param that is not a filter.
func (c *Cluster) Filter(ctx context.Context) (*Filter, error) {
	e, err := c.profile.Get(ctx)
	if err != nil {
		return nil, err
	}
	return FilterOf(e.Value)
}

func FilterOf(d profile.Document) (*Filter, error) {
	v, ok := d.Params[ParamFilter]
	if !ok || v.IsNull() {
		return ParseFilter("")
	}
	f, err := ParseFilter(v.Raw())
	if err != nil {
		return nil, fmt.Errorf("param %q: %w", ParamFilter, err)
	}
	return f, nil
}

// Candidates reads the members as an election sees them: a member that f, the
// cluster's own filter, leaves out is not eligible; nil: it is read. A record that cannot be read
// does not keep other members from being chosen.
func (c *Cluster) Candidates(ctx context.Context, f *Filter) (_ []Candidate, err error) {
	if f == nil {
		if f, err = c.Filter(ctx); err != nil {
			return nil, err
		}
	}
	s, err := c.Load(ctx, NeedChecks|NeedProfile|f.Need())
	if errors.Is(err, consul.ErrDenied) && f.Need() == 0 {
		s, err = c.Load(ctx, NeedProfile) // then no host counts as healthy
	}
	if err == nil {
		err = s.Damaged[KeyLeaders]
	}
	if err != nil {
		return nil, err
	}
	return s.candidates(f), nil
}

// CandidateOf is Candidates for one node, none if it is not a member. What is read does not grow with the number of members.
func (c *Cluster) CandidateOf(ctx context.Context, node string, f *Filter) ([]Candidate, error) {
	s, err := c.LoadHost(ctx, node, NeedChecks|NeedProfile|f.Need())
	if err == nil {
		err = cmp.Or(s.Damaged[KeyLeaders], s.Damaged[KeyProfile])
	}
	if err != nil {
		return nil, err
	}
	return s.candidates(f), nil
}

// candidate returns the member as an election sees it; d is the profile.
func (m Member) candidate(d profile.Document) Candidate {
	manager := slices.Contains(m.Roles, RoleManager)
	eligible := !manager
	// An election changes who has the roles leader and worker, so their params do not count.
	roles := slices.DeleteFunc(slices.Clone(m.Roles), func(r string) bool { return r == RoleLeader || r == RoleWorker })
	v, from, ok := d.EffectiveParam(ParamEligible, roles, m.Params)
	if forAll := from.Layer <= profile.FromCluster; ok && !(manager && forAll) {
		eligible = v.String() == "true"
	}
	return Candidate{Node: m.Node, Eligible: eligible, Failing: m.Condition.Fails()}
}

// ElectionRules reads what the profile says of elections: the cluster's own filter, and how long a leader has to have been
// failing before another takes its place. wrong is why the default counts instead, t's.
func (c *Cluster) ElectionRules(ctx context.Context, t Timing) (f *Filter, grace time.Duration, wrong, err error) {
	e, err := c.profile.Get(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	grace, wrong = gracePeriodIn(e.Value, t.WithDefaults())
	f, err = FilterOf(e.Value)
	return f, grace, wrong, err
}

// LeadersDoc is the document of who leads.
func (c *Cluster) LeadersDoc() kv.Doc[Leaders] { return c.leaders }

// ConfirmStepDown writes that node knows that it was retired.
func (c *Cluster) ConfirmStepDown(ctx context.Context, node string) error {
	_, err := c.leaders.Update(ctx, func(old kv.Entry[Leaders]) (Leaders, bool, error) {
		next := old.Value.clone()
		next.forget(node)
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
