package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// gatherReports is for how long reports are gathered before grants are planned.
const gatherReports = 10 * time.Millisecond

// quietAfterRestore is for how long nothing is granted once Consul's KV was
// restored: hosts report meanwhile what they are at.
const quietAfterRestore = time.Minute

// granter offers grants to the hosts of a rollout, beside the cycles: it neither
// waits for them nor for events to be journalled.
type granter struct {
	*term
	rollouts *rollout.Rollouts // in the store of the lock
	ledger   kv.Entry[rollout.Ledger]
	wake     concurrency.Signal
}

func newGranter(t *term) *granter {
	return &granter{term: t, rollouts: t.Orchestrator.rollouts.Held(t.held), wake: t.watcher.Changes()}
}

// Pauses after a pass that failed.
const firstGrantRetry, lastGrantRetry = 100 * time.Millisecond, 10 * time.Second

// run plans and offers until ctx ends. What the former holder of the lock sent late
// cannot be carried out once the ledger is renewed. After anything that went wrong it renews
// the ledger and reads everything again: no plan is made of a state that is older
// than what this orchestrator wrote, or may have written.
func (g *granter) run(ctx context.Context) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	renewed, begin := false, true
	for ctx.Err() == nil {
		var again time.Time
		var err error
		if !renewed {
			if g.ledger, err = g.rollouts.Renew(ctx, begin); err == nil {
				g.watcher.Reset()
				renewed, begin = true, false
			}
		}
		if err == nil {
			again, err = g.pass(ctx)
			renewed = err == nil
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause := retry.Next()
			if !errors.Is(err, kv.ErrConflict) {
				g.o.Log.Warn("grants are tried again", "error", err, "again_in", pause)
			}
			_ = concurrency.Sleep(ctx, pause) // ends with ctx
		default:
			retry.Reset()
			g.await(ctx, again)
		}
	}
	return ctx.Err()
}

// await returns when there is something new, or at a time that is not zero.
func (g *granter) await(ctx context.Context, at time.Time) {
	wait := ctx
	if !at.IsZero() {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(ctx, at.Add(time.Millisecond))
		defer cancel()
	}
	if g.wake.Wait(wait) == nil {
		_ = concurrency.Sleep(ctx, gatherReports) // ends with ctx
	}
}

// pass reads what has changed, plans, and offers. again is when to plan again even
// if nothing changes.
func (g *granter) pass(ctx context.Context) (again time.Time, err error) {
	now, err := g.watcher.State(ctx)
	if err != nil {
		return again, err
	}
	s, err := g.rollouts.StoredIn(&now, g.ledger)
	if err != nil || !s.Current() || !s.Document.Paced() || s.Document.Phase == rollout.Aborted {
		return again, err
	}
	if probes, known := g.probes.Get(); known {
		now = now.WithProbes(probes)
	}
	state, err := rollout.StateOf(&now, s)
	if err != nil {
		return again, err
	}
	state.PlannedSince = g.began
	plan := rollout.Plan(s.Document, state, time.Now())
	if g.rollouts.Replace(s, plan.Document) != nil {
		g.requested.Notify() // the cycle changes the document, together with its events
		return time.Now().Add(time.Second), nil
	}
	if len(plan.Offers)+len(plan.Withdrawals) == 0 {
		return plan.Again, nil
	}
	g.ledger, err = g.rollouts.Apply(ctx, s, state, plan)
	g.o.Log.Debug("grants", "offered", len(plan.Offers), "withdrawn", len(plan.Withdrawals), "error", err)
	return plan.Again, err
}
