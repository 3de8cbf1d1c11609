package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// rolloutGate returns what is known of the run that the document's gate names, and
// asks for the run if it does not exist.
func (g *granter) rolloutGate(ctx context.Context, d rollout.Document, state rollout.State) (*pace.GateRun, error) {
	if d.Gate == nil || d.Gate.Run == "" {
		return nil, nil //nolint:nilnil // nil: nothing is asked
	}
	known, missing, err := gateRun(ctx, g.store, d.Gate.Run, d.Policy.Gate.Workflow)
	if missing {
		return nil, askGate(ctx, g.store, d.Gate.Run, d.Policy.Gate.Workflow, "rollout of "+d.Version, rollout.FactsOfGate(d, state, time.Now()))
	}
	return known, err
}

// gateRun returns what is known of the run of a gate.
func gateRun(ctx context.Context, s *kv.Store, id, workflow string) (known *pace.GateRun, missing bool, err error) {
	g, err := runs.New(s).GateAnswer(ctx, id, workflow)
	switch {
	case errors.Is(err, runs.ErrNoRun):
		return nil, true, nil
	case errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer):
		return &pace.GateRun{ID: id, Answer: pace.GateUnanswered, Line: err.Error()}, false, nil
	case err != nil:
		return nil, false, err
	}
	return &g, false, nil
}

// askGate asks for the run of a gate. A document named the run in an earlier cycle, so it is
// created once, whichever orchestrator dies in between.
func askGate(ctx context.Context, s *kv.Store, id, workflow, by string, f pace.GateFacts) error {
	q, err := runs.GateRequest(workflow, f)
	if err != nil {
		return err
	}
	return runs.New(s).AskGate(ctx, id, q, by)
}
