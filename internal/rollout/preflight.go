package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Kinds of obstacles to a rollout.
const (
	ObstacleHalted     = "halted"     // the whole cluster is paused, or only observed
	ObstacleHeld       = "held"       // members are on hold
	ObstacleFrozen     = "frozen"     // members are frozen
	ObstacleLeftover   = "leftover"   // grants of an earlier rollout
	ObstacleUnreadable = "unreadable" // documents
	ObstacleWorkflow   = "workflow"   // members without a static workflow
	ObstacleGate       = "gate"       // no manager is up to ask the gate, or none defines its workflow
)

// Obstacle is something that stands in the way of a rollout.
type Obstacle struct {
	Kind  string   `json:"kind"`
	Text  string   `json:"text"`
	Names []string `json:"names"` // members or keys, the first of them
	Count int      `json:"count"` // all of them
	// Possible: it may be no obstacle, as not enough is known.
	Possible bool `json:"possible"`
}

func (o Obstacle) String() string {
	if o.Count == 0 {
		return o.Text
	}
	return text.FewOf(", ", o.Names, o.Count) + ": " + o.Text
}

// obstacles returns what stands in the way of a rollout that is about to begin, beside
// members that are out of service.
func obstacles(d Document, s State, now time.Time) []Obstacle {
	p := newPlanner(d, s, now)
	all := []Obstacle{}
	add := func(kind, text string, found []string, possible bool) {
		if len(found) > 0 {
			all = append(all, Obstacle{kind, text, sortedFirst(slices.Clone(found), pace.MostNames), len(found), possible})
		}
	}
	members := func(wanted func(ranked) bool) (found []string) {
		for _, m := range p.with(wanted) {
			found = append(found, m.Node)
		}
		return found
	}
	if s.Halted != "" {
		all = append(all, Obstacle{Kind: ObstacleHalted, Text: s.Halted, Names: []string{}})
	}
	for _, held := range groups(p.members, func(m *Member) string { return m.held() }) {
		all = append(all, Obstacle{ObstacleHeld, held.Reason, held.Nodes, held.Count, false})
	}
	if frozen, is := d.frozen(s.Control, nil, now); is {
		all = append(all, Obstacle{Kind: ObstacleFrozen, Text: "the cluster is " + frozen.String(), Names: []string{}})
	} else {
		for _, one := range groups(p.members, func(m *Member) string {
			if frozen, is := p.Frozen(m.Roles); is {
				return frozen.String()
			}
			return ""
		}) {
			all = append(all, Obstacle{ObstacleFrozen, one.Reason, one.Nodes, one.Count, false})
		}
	}
	add(ObstacleLeftover, "an operator gave up on it, and it has not converged yet", members(func(m ranked) bool { return m.givenUp() }), false)
	add(ObstacleLeftover, "it has a grant and is not a member: 'jorc update give-up HOST' ends it", s.Strangers, false)
	unreadable := slices.DeleteFunc(slices.Clone(s.Unreadable), func(key string) bool {
		return key == cluster.KeyDesired || key == cluster.KeyVersion || key == cluster.KeyVersionState // the trigger replaces them
	})
	add(ObstacleUnreadable, "the document cannot be read: 'jorc doctor' has the reason", unreadable, false)
	for _, missing := range groups(p.members, func(m *Member) string { return m.undefined() }) {
		all = append(all, Obstacle{ObstacleWorkflow, missing.Reason, missing.Nodes, missing.Count, false})
	}
	paced := !d.Policy.Plain() // then a host without a static block cannot accept its grant; otherwise a script may report its version
	add(ObstacleWorkflow, "its configuration has no static block (static { workflow = … }), without which it does not begin", members(func(m ranked) bool {
		return m.Static != nil && len(m.Static) == 0 && (paced || m.Config.State == "")
	}), !paced)
	if len(members(func(m ranked) bool { return m.Config.State != "" })) > 0 { // otherwise no member has converged yet
		silent := members(func(m ranked) bool { return m.Static == nil && m.Config.State == "" })
		add(ObstacleWorkflow, "it never reported a static workflow; without one (static { workflow = … }) it does not begin", silent, true)
	}
	return append(all, gateObstacles(d.Policy.Gate.Workflow, s.Members)...)
}

// undefined is why the member cannot converge: its static block names a workflow that
// its host does not define; empty: none, or not known.
func (m *Member) undefined() string {
	for _, name := range m.Static {
		if cluster.LacksWorkflow(m.Workflows, name) {
			return fmt.Sprintf("its static block names workflow %q, which its host does not define", name)
		}
	}
	return ""
}

// gateObstacles returns what keeps a gate from being asked; workflow is empty without a
// gate.
func gateObstacles(workflow string, members []Member) []Obstacle {
	if workflow == "" {
		return nil
	}
	var up, without []string
	for i := range members {
		if m := &members[i]; slices.Contains(m.Roles, cluster.RoleManager) && m.Up() {
			up = append(up, m.Node)
			if cluster.LacksWorkflow(m.Workflows, workflow) {
				without = append(without, m.Node)
			}
		}
	}
	switch {
	case len(up) == 0:
		return []Obstacle{{
			Kind: ObstacleGate, Names: []string{}, Possible: true,
			Text: fmt.Sprintf("no manager is up: gate %q is asked on the orchestrator's host", workflow),
		}}
	case len(without) == len(up):
		return []Obstacle{{
			Kind: ObstacleGate, Names: sortedFirst(without, pace.MostNames), Count: len(without),
			Text: fmt.Sprintf("no manager that is up defines gate %q", workflow),
		}}
	}
	return nil
}

// Rollback makes the version before the desired one the desired one again, or q.Version if
// that is given, with the policy of the rollout that it takes back, without gates, bakes,
// consent and windows unless q.WithGates. q.Policy counts for nothing. It returns ErrNoPrevious, ErrNone, or what Trigger returns.
func (r *Rollouts) Rollback(ctx context.Context, q Request, reason string) (Triggered, error) {
	if q.Version != "" {
		if err := cluster.CheckVersion(q.Version); err != nil {
			return Triggered{}, err
		}
	}
	to := q.Version
	var t Triggered
	err := kv.RetryConflicts(ctx, func() error {
		s, err := r.Load(ctx)
		if err == nil {
			err = s.usable(r)
		}
		if err != nil {
			return err
		}
		d := s.Document
		if q.Version = to; to == "" {
			q.Version = d.Previous
		}
		switch {
		case q.Version == "" || to == "" && q.Version == d.Version:
			return fmt.Errorf("%w: it is not known which version all members ran before %s: name one with --to", ErrNoPrevious, d.Version)
		case q.Version == d.Version:
			return fmt.Errorf("%w: %s is the desired version: 'jorc update trigger %[2]s' continues it", ErrNoPrevious, d.Version)
		}
		if reason == "" {
			reason = "by " + q.By
		}
		q.Policy, q.rollback = nil, &Rollback{Version: d.Version, Reason: reason, WithGates: q.WithGates}
		t, err = r.trigger(ctx, q)
		return err
	})
	return t, err
}
