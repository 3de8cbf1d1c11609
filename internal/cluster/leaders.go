package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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

// Clone returns a copy that can be changed.
func (l Leaders) Clone() Leaders {
	l.Leader, l.Manager, l.Retired = slices.Clone(l.Leader), slices.Clone(l.Manager), slices.Clone(l.Retired)
	return l
}

// SetManager makes a node a manager.
func (l *Leaders) SetManager(node string) {
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

// Forget removes node from the retired leaders.
func (l *Leaders) Forget(node string) {
	l.Retired = slices.DeleteFunc(l.Retired, func(r Retired) bool { return r.Node == node })
}

// Without returns l without node; believes says that node may think that it
// leads.
func (l Leaders) Without(node string, believes bool) (next Leaders, changed bool) {
	next = l.Clone()
	next.Manager = slices.DeleteFunc(next.Manager, func(n string) bool { return n == node })
	switch {
	case l.Leads(node):
		next.retire(node, time.Now())
		if !believes {
			next.Forget(node)
		}
	case !believes:
		next.Forget(node)
	}
	return next, !next.Equal(l)
}

// Equal reports whether both say the same, whenever members retired.
func (l Leaders) Equal(o Leaders) bool {
	return slices.Equal(l.Leader, o.Leader) && slices.Equal(l.Manager, o.Manager) && l.Count == o.Count &&
		slices.EqualFunc(l.Retired, o.Retired, func(a, b Retired) bool { return a.Node == b.Node })
}

// FilterOf returns the filter of a profile, the param cluster/filter; without it every member matches. It returns a *FilterError.
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
