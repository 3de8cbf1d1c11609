package orchestrator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/view"
)

// ForRollout returns the decider that moves a cluster's rollout on.
func ForRollout(r *rollout.Rollouts) Decider { return &rolloutDecider{rollouts: r} }

type rolloutDecider struct {
	rollouts *rollout.Rollouts
	stalled  uint64 // the index of the slot group in which free slots were waited for; 0: none
}

// Name implements Decider.
func (*rolloutDecider) Name() string { return "rollout" }

// Decide implements Decider. What it decides is asked for again when somebody
// else changed the rollout, or took a slot, in between.
func (d *rolloutDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	r := d.rollouts.In(in.Store)
	for ctx.Err() == nil {
		decisions, err := d.decide(ctx, r, in)
		if !errors.Is(err, kv.ErrConflict) {
			return decisions, err
		}
	}
	return nil, ctx.Err()
}

// load reads the rollout, and wakes those who wait for a slot that is free and that
// nobody has handed on since the look before: in between they do so themselves.
func (d *rolloutDecider) load(ctx context.Context, r *rollout.Rollouts) (rollout.State, error) {
	s, err := r.Load(ctx)
	if err != nil {
		return s, err
	}
	before := d.stalled
	d.stalled = s.Stalled()
	if d.stalled == 0 || d.stalled != before {
		return s, nil
	}
	if err := r.Wake(ctx, s.Group.Max); err != nil {
		return s, err
	}
	return r.Load(ctx)
}

func (d *rolloutDecider) decide(ctx context.Context, r *rollout.Rollouts, in Input) ([]Decision, error) {
	s, err := d.load(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.Damaged != nil {
		return nil, s.Damaged // the nodes go by what they read last
	}
	if d, ok := rollout.Adopt(s.Snapshot, in.Now); ok {
		return carriedOut(ctx, r, s, d, slots.Keep, []Decision{{
			Kind: RolloutAdopted, Before: s.Document.Version, After: d.Version,
			Text: fmt.Sprintf("version %s was written past the rollout: it is for everybody at once", d.Version),
		}})
	}
	if !s.Exists {
		return nil, nil
	}
	v, badFilter := rollout.ViewOf(&in.State, s.Held())
	v.Desired = s.Desired
	downSince(v.Members, in.View)
	if badFilter != nil {
		return nil, badFilter // whom it is about cannot be told
	}
	next, limit, decided := rollout.Plan(s.Document, v, in.Now)
	decisions := make([]Decision, len(decided))
	for i, p := range decided {
		decisions[i] = Decision{Kind: rolloutKind(p.Kind), Text: p.Text, Reason: p.Reason, After: next.Version}
	}
	return carriedOut(ctx, r, s, next, limit, decisions)
}

// carriedOut makes the plan part of its decisions, so that it happens with them
// or not at all. What is no decision is carried out by itself.
func carriedOut(ctx context.Context, r *rollout.Rollouts, s rollout.State, next rollout.Document, limit int, decisions []Decision) ([]Decision, error) {
	if len(decisions) == 0 {
		_, err := r.Apply(ctx, s, next, limit)
		return nil, err
	}
	do, err := r.Prepare(ctx, s, next, limit)
	if err != nil {
		return nil, err
	}
	for i := range decisions {
		decisions[i].Together, decisions[i].Again = i > 0, true
	}
	decisions[0].Do = do
	return decisions, nil
}

// downSince fills in since when members are down, as far as that is known: of
// one whose host is up, but whose agent is not, since it got its slot.
func downSince(members []rollout.Member, v view.View) {
	for i := range members {
		m := &members[i]
		if m.Up {
			continue
		}
		m.DownSince = m.HeldSince
		if n := v.Nodes[m.Node]; n.Life == string(cluster.LivenessDown) {
			m.DownSince = n.LifeSince
		}
	}
}
