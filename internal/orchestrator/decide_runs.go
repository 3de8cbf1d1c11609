package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// deciderRuns is the name under which reports show what was decided of runs.
const deciderRuns = "runs"

// planRuns starts the runs that are due, and plans all that are in progress. again is when time alone changes them.
func (g *granter) planRuns(ctx context.Context, r *round) (again time.Time, err error) {
	if idleReason(&r.State) != "" {
		g.setRuns(nil)
		return again, nil // the cycle says so
	}
	if _, rules := r.State.Profile.Params[runs.ParamRules]; rules || len(r.State.ActiveRuns) > 0 { // otherwise none takes a place
		if err := r.counted(); err != nil {
			g.problems.set(deciderRuns, err) // until the rollout can be read
			return again, nil
		}
	}
	gate, unreadable := rollout.GateRunIn(g.store, &r.State)
	wrote := false
	observed := runs.Observed{
		Node: g.o.Node, State: r.State, Members: g.members.list(&r.State, g.lastView()), Now: time.Now(), Quiet: r.ledger.Value.Quiet, Asked: r.asked,
		Gates: append(slices.Clone(g.gates), gate), GatesKnown: unreadable == nil && g.gatesKnown,
		Refresh: func(ctx context.Context) (cluster.State, []cluster.Member, error) {
			err := r.refresh(ctx)
			return r.State, g.members.list(&r.State, g.lastView()), err
		},
		Barred: func(node string) string { return budget.Barred(&r.State, node) },
		Commit: func(ctx context.Context, decided []event.Decision, offers runs.Offers, do func(*kv.Txn)) error {
			wrote = true
			return r.write(ctx, transaction{by: deciderRuns, decisions: decided, offers: offers.Any, offered: offers.Disturbed, do: func(t *kv.Txn) {
				if offers.Any {
					change.Fence(t, r.State.Indexes)
				}
				do(t)
			}})
		},
	}
	if r.base != nil {
		observed.Left = func(d pace.Demand, taken []string) *pace.Account { return r.left(d, taken...) }
	}
	_, err = g.decider.Decide(ctx, g.store, observed)
	progress := g.decider.Progress()
	g.setRuns(&progress)
	if fatal(ctx, err) {
		return again, err // the next round plans again
	}
	g.problems.set(deciderRuns, err)
	denied := g.decider.Denied()
	for _, demand := range denied {
		r.wants(demand)
		r.last(demand)
	}
	r.forget(func(name string) bool {
		_, is := cluster.RunOf(name)
		return is && !slices.ContainsFunc(denied, func(d pace.Demand) bool { return d.Change == name })
	})
	switch {
	case err != nil:
		return time.Now().Add(lastGrantRetry), nil
	case wrote:
		return time.Now(), nil
	}
	return g.decider.NextDue(), nil
}

// fatal reports whether a round has to end with err: it is not known what it was made of, or what it wrote.
func fatal(ctx context.Context, err error) bool {
	ends := []error{kv.ErrConflict, kv.ErrLockLost, consul.ErrOutcomeUnknown, consul.ErrUnreachable, consul.ErrRateLimited}
	return err != nil && (ctx.Err() != nil || slices.ContainsFunc(ends, func(e error) bool { return errors.Is(err, e) }))
}

// counted has it counted who is out of service, in a cluster with a budget.
func (r *round) counted() error {
	_, err := r.account(pace.Demand{})
	return err
}

// refresh has the round continue with the state as it is now. It returns kv.ErrConflict if nothing may be decided now, or a plan
// that has begun would not know the budget.
func (r *round) refresh(ctx context.Context) error {
	limited := r.State.Control.Budget != nil
	if err := r.load(ctx); err != nil {
		return err
	}
	if why := idleReason(&r.State); why != "" {
		return fmt.Errorf("%w: %s", kv.ErrConflict, why)
	}
	if limited != (r.State.Control.Budget != nil) {
		return fmt.Errorf("%w: the cluster has a budget since, or none", kv.ErrConflict)
	}
	return r.counted()
}
