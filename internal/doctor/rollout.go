package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/rollout"
)

// rollout checks that an orchestrator runs while a rollout needs one. It has no
// finding if no rollout does.
func (e *examination) rollout(ctx context.Context) []Finding {
	const name = "orchestrator"
	rollouts := rollout.New(e.client, e.Config.Prefix, e.Config.Cluster)
	stored, err := bounded(ctx, e.Timeout, rollouts.Load)
	if err == nil && (!stored.Current() || !stored.Document.Paced() || stored.Document.Over()) {
		return nil
	}
	orchestrated := false
	if err == nil {
		orchestrated, err = bounded(ctx, e.Timeout, rollouts.Orchestrated)
	}
	switch {
	case errors.Is(err, consul.ErrDenied), errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
		return nil // other checks report it
	case err != nil:
		return one(name, Warn, err.Error(), "")
	case !orchestrated:
		return one(name, Warn, fmt.Sprintf("the rollout of %s is not finished and no orchestrator runs: no host is offered a grant", stored.Document.Version),
			"start an agent with orchestrator { enabled = true }")
	}
	return one(name, OK, "an orchestrator runs the rollout of "+stored.Document.Version, "")
}
