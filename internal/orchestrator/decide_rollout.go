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
			Kind: RolloutAdopted, AuthorUnknown: true, Before: s.Document.Version, After: next.Version, Do: r.Replace(s, next), Again: true,
			Text: fmt.Sprintf("version %s was written past the rollout: %s", next.Version, adoptedText(s, next)),
		}}, nil
	}
	if next, ok := s.Budgeted(in.Now); ok {
		return []Decision{{
			Kind: RolloutBudgeted, After: next.Version, Do: r.Replace(s, next), Again: true,
			Text: fmt.Sprintf("the rollout of %s had no policy: %s it from now on", next.Version, pacedBy(s)),
		}}, nil
	}
	if !s.Exists {
		return nil, nil
	}
	if err := rollout.CheckState(&in.State); err != nil {
		return nil, err // which hosts take part is not known
	}
	if s.Unrecorded() {
		return d.recordEnd(ctx, r, in, s)
	}
	if s.Document.Over() || s.Document.Stopped != nil {
		return nil, commit(ctx, in.Store, r.Know(s)) // a plan changes nothing about it
	}
	state, err := rollout.StateOf(&in.State, s)
	if err != nil {
		return nil, err
	}
	state.PlannedSince = in.Since
	downSince(state.Members, in.View)
	if state.Gate, err = rolloutGate(ctx, in, s.Document, state); err != nil {
		return nil, fmt.Errorf("ask the gate of the rollout: %w", err)
	}
	plan := rollout.Plan(s.Document, state, in.Now)
	if r.Replace(s, plan.Document) == nil {
		return nil, commit(ctx, in.Store, r.Know(s))
	}
	names, err := r.RecordNames(ctx)
	if err != nil {
		return nil, err
	}
	do := r.ReplaceRecorded(s, plan.Document, state, names, in.Now)
	decisions := make([]Decision, len(plan.Decisions))
	for i, p := range plan.Decisions {
		decisions[i] = Decision{Kind: rolloutKind(p.Kind), Text: p.Text, Reason: p.Reason, After: plan.Document.Version, Together: i > 0, Again: true}
	}
	if len(decisions) == 0 { // only numbers and times
		return nil, commit(ctx, in.Store, do)
	}
	decisions[0].Do = do
	return decisions, nil
}

func adoptedText(s rollout.Stored, d rollout.Document) string {
	if d.Paced() {
		return pacedBy(s) + " it"
	}
	return "all hosts begin at once"
}

// pacedBy says what paces a rollout without a policy of its own.
func pacedBy(s rollout.Stored) string {
	if s.Control.Budget == nil {
		return "the orchestrator, because of a freeze, paces"
	}
	return "the budget of the cluster paces"
}

// recordEnd records a rollout that a command ended.
func (d rolloutDecider) recordEnd(ctx context.Context, r *rollout.Rollouts, in Input, s rollout.Stored) ([]Decision, error) {
	state, err := rollout.StateOf(&in.State, s)
	if err != nil {
		return nil, err
	}
	names, err := r.RecordNames(ctx)
	if err != nil {
		return nil, err
	}
	f := s.Ended(state)
	do := r.Record(s, f, names)
	one := Decision{Reason: f.Why, Before: f.Version, Do: do, Again: true}
	switch f.Outcome {
	case rollout.OutcomeDone: // its event was journalled when it was decided
		return nil, commit(ctx, in.Store, do)
	case rollout.OutcomeAborted:
		one.Kind, one.Text = rolloutKind(rollout.DecideAbort), "the rollout of "+f.Version+" is aborted"
	default:
		one.Kind, one.Text = rolloutKind(rollout.DecideSupersede), "the rollout of "+f.Version+" ended before all members ran it"
	}
	return []Decision{one}, nil
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
