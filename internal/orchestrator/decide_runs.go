package orchestrator

import (
	"context"

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

// Decide implements Decider.
func (d runsDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	decided, err := d.runs.Decide(ctx, in.Store, runs.Observed{
		Node: d.node, Members: in.Members, Profile: in.Profile, Control: in.Control, Now: in.Now, Refresh: in.Refresh,
	})
	decisions := make([]Decision, len(decided))
	for i, p := range decided {
		decisions[i] = Decision{Kind: p.Kind, Node: p.Node, Text: p.Text, After: p.Run}
	}
	return decisions, err
}
