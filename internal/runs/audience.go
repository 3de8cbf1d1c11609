package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/text"
)

// Targets are the members that a run is for if it begins now.
type Targets struct {
	Workflow string   `json:"workflow"`
	Members  []string `json:"members"`
	// Undefined are the members whose hosts do not define the workflow, and Unknown those
	// of which that is not known: their records do not have it.
	Undefined []string `json:"undefined"`
	Unknown   []string `json:"unknown"`
	// Damaged are the hosts whose member records cannot be read: they take no part.
	Damaged []string `json:"damaged"`
}

// Targets reads the members that a new run is for. It fails if no member matches, and,
// with what it has read, if the workflow is not defined on one of them; not for a run
// that exists, whose members are decided already. It returns cluster.ErrNoCluster, a
// *cluster.FilterError or a class of package consul.
func (r *Runs) Targets(ctx context.Context, c *fleet.Cluster, id string, q Request) (Targets, error) {
	t := Targets{Workflow: q.Workflow, Members: []string{}, Undefined: []string{}, Unknown: []string{}, Damaged: []string{}}
	filter, err := cluster.ParseFilter(q.Filter)
	if err != nil {
		return t, err
	}
	s, own, err := loadState(ctx, c, needOf(q), filter)
	if err != nil {
		return t, err
	}
	if !s.Exists {
		_, err := c.Profile(ctx) // its error names what to do
		return t, err
	}
	for _, node := range s.Nodes() {
		if s.DamagedMember(node) != nil {
			t.Damaged = append(t.Damaged, node)
		}
	}
	all := candidates(&s, own, filter)
	if q.OnManager {
		if t.Members, err = r.managerNow(ctx, q.Workflow, all); err != nil {
			return t, err
		}
	} else {
		q.Filter = "" // the candidates match it
		t.Members = Matching(q, all, nil)
	}
	t.classify(all)
	if len(t.Undefined) == 0 && (len(t.Members) > 0 || q.OnManager) {
		return t, nil
	}
	if _, err := r.Show(ctx, id); !errors.Is(err, ErrNoRun) {
		return t, err
	}
	switch {
	case len(t.Undefined) > 0:
		var known []string
		for _, h := range s.Hosts {
			known = append(known, h.Record.Workflows...)
		}
		return t, t.undefined(known)
	case q.Role != "":
		return t, withoutRole(ctx, c, q.Role)
	}
	return t, fmt.Errorf("no member of cluster %q matches: nothing was written; 'jorc cluster members' lists them, managers take no part", c.Name())
}

// needOf is what has to be read beside what filters need.
func needOf(q Request) cluster.Need {
	if q.OnManager {
		return cluster.NeedAgent
	}
	return 0
}

// managerNow is where a workflow of managers runs if it begins now; no name: no
// orchestrator runs that could choose.
func (r *Runs) managerNow(ctx context.Context, workflow string, all []cluster.Member) ([]string, error) {
	holder, _, err := fleet.Orchestrator(ctx, r.store)
	if err != nil && !errors.Is(err, consul.ErrDenied) {
		return nil, err
	}
	up := slices.DeleteFunc(slices.Clone(all), func(m cluster.Member) bool { return m.Agent != cluster.AgentUp && m.Node != holder.Node })
	if node := chooseManager(workflow, up, holder.Node); node != "" {
		return []string{node}, nil
	}
	return []string{}, nil
}

// chooseManager returns the node that runs a workflow of managers: the first of the
// managers that are up, one whose host does not define it only if none does, and
// without a manager the orchestrator's own.
func chooseManager(workflow string, up []cluster.Member, holder string) string {
	var able, others []string
	for i := range up {
		switch m := &up[i]; {
		case !slices.Contains(m.Roles, cluster.RoleManager):
		case cluster.LacksWorkflow(m.Workflows, workflow):
			others = append(others, m.Node)
		default:
			able = append(able, m.Node)
		}
	}
	if len(able) == 0 {
		able = others
	}
	if len(able) == 0 {
		return holder
	}
	return slices.Min(able)
}

// classify fills in the members that lack the workflow, and those of which that is
// not known.
func (t *Targets) classify(all []cluster.Member) {
	by := make(map[string]*cluster.Member, len(all))
	for i := range all {
		by[all[i].Node] = &all[i]
	}
	for _, node := range t.Members {
		switch m := by[node]; {
		case m == nil || m.Workflows == nil:
			t.Unknown = append(t.Unknown, node)
		case cluster.LacksWorkflow(m.Workflows, t.Workflow):
			t.Undefined = append(t.Undefined, node)
		}
	}
}

// undefined is the error that members lack the workflow; known are the workflows that
// members define.
func (t *Targets) undefined(known []string) error {
	what := fmt.Sprintf("workflow %q is not defined on %d of %d members: nothing was written", t.Workflow, len(t.Undefined), len(t.Members))
	switch {
	case !slices.Contains(known, t.Workflow):
		return errors.New(what + text.Unknown(t.Workflow, "workflows", known))
	case len(t.Undefined) == len(t.Members):
		return fmt.Errorf("%s; define it there: %s", what, several(t.Undefined))
	}
	return fmt.Errorf("%s; define it there, or leave them out with --skip-undefined: %s", what, several(t.Undefined))
}

// SkipUndefined returns the request without members whose hosts are known not to define
// the workflow: it is a filter.
func (q Request) SkipUndefined() Request {
	defined := fmt.Sprintf("(%q in Workflows or Workflows is nil)", q.Workflow)
	if q.Filter != "" {
		defined = "(" + q.Filter + ") and " + defined
	}
	q.Filter = defined
	return q
}

// withoutRole is the error that no member with a role matches, or that no member
// has the role, and which roles exist.
func withoutRole(ctx context.Context, c *fleet.Cluster, role string) error {
	all, err := c.Members(ctx, fleet.MembersOptions{Unreadable: func(string, error) {}})
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range all {
		for _, r := range all[i].Roles {
			known[r] = true
		}
	}
	if known[role] {
		return fmt.Errorf("no member of cluster %q with role %q matches: nothing was written; 'jorc cluster members' lists them", c.Name(), role)
	}
	return fmt.Errorf("no member of cluster %q has role %q%s", c.Name(), role, text.Unknown(role, "roles", slices.Collect(maps.Keys(known))))
}

// Explain adds why runs do not continue. It reads the cluster's control only if one
// has not ended, and it is not an error if the token may not read it.
func Explain(ctx context.Context, c *fleet.Cluster, all ...*Run) error {
	if !slices.ContainsFunc(all, func(r *Run) bool { return !r.State.Ended() }) {
		return nil
	}
	control, err := c.Control(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return nil
	}
	for _, r := range all {
		r.Explain(control)
	}
	return err
}

// Audience describes the members that a run is for.
func (r Run) Audience() string {
	q := r.Request
	if q.OnManager {
		return "a manager"
	}
	var parts []string
	switch {
	case q.RetryOf != "":
		parts = append(parts, fmt.Sprintf("%d of run %s", len(q.Nodes), q.RetryOf))
	case len(q.Nodes) > 0:
		parts = append(parts, several(q.Nodes))
	}
	if q.Role != "" {
		parts = append(parts, "role "+q.Role)
	}
	if q.Filter != "" {
		parts = append(parts, q.Filter)
	}
	text := cmp.Or(strings.Join(parts, ", "), "all")
	if r.Rule != nil {
		text += " (rule " + r.Rule.Name + ")"
	}
	return text
}
