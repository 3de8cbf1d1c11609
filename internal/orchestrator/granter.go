package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
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
	wake concurrency.Signal
}

func newGranter(t *term) *granter { return &granter{term: t, wake: t.watcher.Changes()} }

// Pauses after a pass that failed.
const firstGrantRetry, lastGrantRetry = 100 * time.Millisecond, 10 * time.Second

// run plans and offers until ctx ends.
func (g *granter) run(ctx context.Context) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	for ctx.Err() == nil {
		var again time.Time
		err := g.places.plan(ctx, func(ctx context.Context, r *round) (err error) {
			again, err = g.pass(ctx, r)
			return err
		})
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

// changeVersion names the rollout among the changes that wait for a place.
const changeVersion = "version"

// pass plans and offers. again is when to plan again even if nothing changes.
func (g *granter) pass(ctx context.Context, r *round) (again time.Time, err error) {
	s, state, err := r.rollout()
	if err != nil || !s.Current() || !s.Document.Paced() || s.Document.Phase == rollout.Aborted {
		r.wants(pace.Demand{Change: changeVersion})
		return again, err
	}
	state.PlannedSince = g.began
	demand := pace.Demand{Change: changeVersion, Restores: s.Document.RollbackOf != nil, Open: state.Open(), Created: s.Document.Started}
	if state.Places, err = r.account(demand); err != nil {
		return again, err
	}
	plan := rollout.Plan(s.Document, state, time.Now())
	if g.places.rollouts.Replace(s, plan.Document) != nil {
		g.requested.Notify() // the cycle changes the document, together with its events
		return time.Now().Add(time.Second), nil
	}
	for _, d := range plan.Denied {
		demand.Nodes = append(demand.Nodes, d.Node)
	}
	r.wants(demand)
	if len(plan.Offers)+len(plan.Withdrawals) == 0 {
		return plan.Again, nil
	}
	r.ledger, err = g.places.rollouts.Apply(ctx, s, state, plan)
	g.o.Log.Debug("grants", "offered", len(plan.Offers), "withdrawn", len(plan.Withdrawals), "error", err)
	return plan.Again, err
}
