package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// ForRollout returns the decider that moves a cluster's rollout on.
func ForRollout(r *rollout.Rollouts) Decider { return rolloutDecider{r} }

type rolloutDecider struct{ rollouts *rollout.Rollouts }

// Name implements Decider.
func (rolloutDecider) Name() string { return "rollout" }

// Decide implements Decider: it plans again when somebody else changed the
// rollout, or took a slot, in between.
func (d rolloutDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	r := d.rollouts.In(in.Store)
	for ctx.Err() == nil {
		decisions, err := decideRollout(ctx, r, in)
		if !errors.Is(err, kv.ErrConflict) {
			return decisions, err
		}
	}
	return nil, ctx.Err()
}

func decideRollout(ctx context.Context, r *rollout.Rollouts, in Input) ([]Decision, error) {
	s, err := r.Load(ctx)
	if err != nil {
		return nil, err
	}
	if s.Damaged != nil {
		return nil, s.Damaged // the nodes go by what they read last
	}
	if d, ok := rollout.Adopt(s.Snapshot, in.Now); ok {
		if _, err := r.Apply(ctx, s, d, slots.Keep); err != nil {
			return nil, err
		}
		return []Decision{{
			Kind: "rollout_adopted", Before: s.Document.Version, After: d.Version,
			Text: fmt.Sprintf("version %s was written past the rollout: it is for everybody at once", d.Version),
		}}, nil
	}
	if !s.Exists {
		return nil, nil
	}
	v, badFilter := rollout.ViewOf(in.Observation, in.Documents, s.Group)
	v.Desired = s.Desired
	if badFilter != nil {
		return nil, badFilter // whom it is about cannot be told
	}
	next, limit, decided := rollout.Plan(s.Document, v, in.Now)
	if _, err := r.Apply(ctx, s, next, limit); err != nil {
		return nil, err
	}
	decisions := make([]Decision, len(decided))
	for i, p := range decided {
		decisions[i] = Decision{Kind: "rollout_" + strings.ReplaceAll(p.Kind, " ", "_"), Text: p.Text, Reason: p.Reason, After: next.Version}
	}
	return decisions, nil
}
