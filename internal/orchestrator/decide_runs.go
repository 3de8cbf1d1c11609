package orchestrator

import (
	"context"
	"slices"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// ForRuns returns the decider that spreads a cluster's runs over members; node
// is the orchestrator's own.
func ForRuns(d *runs.Decider, node string) Decider { return runsDecider{d, node} }

type runsDecider struct {
	runs *runs.Decider
	node string
}

// Name implements Decider.
func (runsDecider) Name() string { return "runs" }

// Decide implements Decider. What it decides is recorded on the way, each
// transaction with its events.
func (d runsDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	gate, unreadable := rollout.GateRunIn(in.Store, &in.State)
	_, err := d.runs.Decide(ctx, in.Store, runs.Observed{
		Gates: append(slices.Clone(in.StageGates), gate), GatesKnown: unreadable == nil && in.StageGatesKnown,
		Node: d.node, Members: in.Members, Profile: in.State.Profile, Control: in.State.Control, Now: in.Now, Refresh: in.Refresh,
		Record: func(ctx context.Context, decided []runs.Decision, also func(*kv.Txn)) error {
			decisions := make([]Decision, len(decided))
			for i, p := range decided {
				decisions[i] = Decision{Kind: p.Kind, Node: p.Node, Text: p.Text, After: p.Run}
			}
			return in.Record(ctx, decisions, also)
		},
	})
	return nil, err
}

// runsProgress returns the progress of the cluster's runs; ok is false without a
// decider of runs.
func runsProgress(deciders []Decider) (p runs.Progress, ok bool) {
	for _, d := range deciders {
		if d, is := d.(runsDecider); is {
			return d.runs.Progress(), true
		}
	}
	return p, false
}
