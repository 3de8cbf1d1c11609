package orchestrator

import (
	"context"
	"fmt"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
)

// ForRollout returns the decider that moves a cluster's rollout from phase to
// phase. Hosts are paced beside it, see granter.
func ForRollout(r *rollout.Rollouts) Decider { return rolloutDecider{r} }

type rolloutDecider struct{ rollouts *rollout.Rollouts }

// Name implements Decider.
func (rolloutDecider) Name() string { return "rollout" }

// Decide implements Decider. The plan is part of its decisions, so that it happens
// with them or not at all; when the rollout was changed in between it is rebuilt.
func (d rolloutDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	r := d.rollouts.In(in.Store)
	s, err := r.Load(ctx)
	if err != nil {
		return nil, err
	}
	if s.Damaged != nil {
		return nil, s.Damaged // hosts go by what they read last
	}
	if next, ok := s.Adopted(in.Now); ok {
		return []Decision{{
			Kind: RolloutAdopted, Before: s.Document.Version, After: next.Version, Do: r.Replace(s, next), Again: true,
			Text: fmt.Sprintf("version %s was written past the rollout: all hosts begin at once", next.Version),
		}}, nil
	}
	if !s.Exists {
		return nil, nil
	}
	state, err := rollout.StateOf(&in.State, s)
	if err != nil {
		return nil, err // the host is not known
	}
	state.PlannedSince = in.Since
	downSince(state.Members, in.View)
	plan := rollout.Plan(s.Document, state, in.Now)
	do := r.Replace(s, plan.Document)
	if do == nil {
		return nil, nil
	}
	decisions := make([]Decision, len(plan.Decisions))
	for i, p := range plan.Decisions {
		decisions[i] = Decision{Kind: rolloutKind(p.Kind), Text: p.Text, Reason: p.Reason, After: plan.Document.Version, Together: i > 0, Again: true}
	}
	if len(decisions) == 0 { // only numbers and times
		t := in.Store.Txn()
		do(t)
		_, err := t.Commit(ctx)
		return nil, err
	}
	decisions[0].Do = do
	return decisions, nil
}

// downSince fills in since when members are down, as far as that is known: of
// one whose host is up, but whose agent is not, since it got its grant.
func downSince(members []rollout.Member, v View) {
	for i := range members {
		m := &members[i]
		if m.Up() {
			continue
		}
		m.DownSince = m.Answer.Since
		if n := v.Nodes[m.Node]; n.Life == cluster.LivenessDown {
			m.DownSince = n.LifeSince
		}
	}
}
