package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// Bounds of the time for which reports are gathered before a plan is made: a part of what the last pass took.
const (
	gatherPart  = 4
	gatherLeast = 2 * time.Millisecond
	gatherMost  = 10 * time.Millisecond
)

// quietAfterRestore is for how long nothing is granted once Consul's KV was
// restored: hosts report meanwhile what they are at.
const quietAfterRestore = time.Minute

// granter moves changes of all kinds from step to step, and offers grants to hosts, beside the cycles: it
// neither waits for them nor for events to be journalled.
type granter struct {
	*term
	wake     concurrency.Signal
	problems problems
	// history has what orchestrators know of the rollouts before; nil: it is to be read. Only a pass
	// uses it, in its round.
	history *rollout.Stored

	// gates are the runs that gates of stages wait for; gatesKnown: it is known of all stages. settled are the stages in which
	// nothing was left to do: they are planned again once a host reports news.
	gates      []string
	gatesKnown bool
	settled    map[string]bool

	decider *runs.Decider
	members memberList
}

// problems is why changes of a kind cannot be planned, by decider.
type problems struct {
	mu  sync.Mutex
	all map[string]error
}

// set notes why what a decider plans cannot be planned; nil: it can.
func (p *problems) set(decider string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]error{}
	}
	p.all[decider] = err
}

// report adds them to a report.
func (p *problems) report(r *Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, decider := range slices.Sorted(maps.Keys(p.all)) {
		if err := p.all[decider]; err != nil {
			r.problem("decider", decider, err)
		}
	}
}

func newGranter(t *term) *granter {
	return &granter{term: t, wake: t.watcher.Changes(), settled: map[string]bool{}, decider: runs.NewDecider(t.o.RunGrace, t.o.Log)}
}

// Pauses after a pass that failed.
const firstGrantRetry, lastGrantRetry = 100 * time.Millisecond, 10 * time.Second

// run plans and offers until ctx ends.
func (g *granter) run(ctx context.Context) error {
	retry := concurrency.NewBackoff(firstGrantRetry, lastGrantRetry)
	for ctx.Err() == nil {
		began := time.Now()
		again, err := g.plan(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause := retry.Next()
			if !errors.Is(err, kv.ErrConflict) {
				g.problems.set(deciderRollout, err)
				g.o.Log.Warn("what hosts are granted is planned again", "error", err, "again_in", pause)
			}
			_ = concurrency.Sleep(ctx, pause) // ends with ctx
		default:
			retry.Reset()
			g.await(ctx, again, min(max(took/gatherPart, gatherLeast), gatherMost))
		}
	}
	return ctx.Err()
}

// plan runs one pass in a round of its own.
func (g *granter) plan(ctx context.Context) (again time.Time, err error) {
	err = g.places.plan(ctx, func(ctx context.Context, r *round) (err error) {
		if again, err = g.pass(ctx, r); err != nil {
			return err
		}
		for _, one := range []func(context.Context, *round) (time.Time, error){g.leases, g.stages, g.planRuns} {
			due, err := one(ctx, r)
			if err != nil {
				return err
			}
			again = pace.Earliest(again, due)
		}
		return nil
	})
	return again, err
}

// mostAtOnce is how many passes a request for a cycle waits for.
const mostAtOnce = 10

// settle runs passes until there is nothing left to do now.
func (g *granter) settle(ctx context.Context) error {
	for range mostAtOnce {
		again, err := g.plan(ctx)
		switch {
		case overtaken(err):
		case err != nil || again.IsZero() || again.After(time.Now()):
			return err
		}
	}
	return nil
}

// await returns when there is something new, gather after that, or at a time that is not zero. It reads the clock in each interval,
// since that may be set, or stand still with the host.
func (g *granter) await(ctx context.Context, at time.Time, gather time.Duration) {
	at = at.Round(0) // the clock's time alone
	for {
		until := at
		if latest := time.Now().Add(g.o.Interval); latest.Before(at) {
			until = latest
		}
		if g.wake.WaitUntil(ctx, until) == nil {
			_ = concurrency.Sleep(ctx, gather) // ends with ctx
			return
		}
		if ctx.Err() != nil || !time.Now().Before(at) {
			return
		}
	}
}

// pass plans, writes what the rollout becomes, and offers. again is when to plan again even if nothing changes.
func (g *granter) pass(ctx context.Context, r *round) (again time.Time, err error) {
	decides := idleReason(&r.State) == ""
	s, state, err := r.rollout()
	if decides {
		g.problems.set(deciderRollout, cmp.Or(s.Damaged, err)) // hosts go by what they read last
	}
	if err != nil || s.Damaged != nil {
		r.wants(pace.Demand{Change: cluster.VersionChange})
		return again, nil // until it can be read
	}
	now := time.Now()
	if decides {
		if s, err = g.withHistory(ctx, s); err != nil {
			return again, err
		}
		if d, err := g.begun(ctx, s, state, now); err != nil || d != nil {
			return now, g.write(ctx, r, d, err)
		}
	}
	d := s.Document
	if !s.Current() || d.Phase == pace.Aborted || !d.Paced() && (d.Over() || d.Stopped != nil) {
		r.wants(pace.Demand{Change: cluster.VersionChange})
		if do := g.places.rollouts.Know(s); decides && do != nil {
			return now, g.write(ctx, r, &rolloutDecision{do: do}, nil)
		}
		return again, nil
	}
	state.PlannedSince = g.began
	if seen := g.lastObserved(); seen != nil {
		downSince(state.Members, seen.view)
		awaySince(state.Members, seen.view)
	}
	demand := pace.Demand{Change: cluster.VersionChange, Restores: d.RollbackOf != nil, Open: state.Open(), Created: d.Started}
	if state.Places, err = r.account(demand); err != nil {
		return again, err
	}
	if state.Gate, err = g.rolloutGate(ctx, d, state); err != nil {
		return again, fmt.Errorf("ask the gate of the rollout: %w", err)
	}
	plan := rollout.Plan(d, state, now)
	if decides {
		if d, err := g.next(ctx, s, state, plan, now); err != nil || d != nil {
			return now, g.write(ctx, r, d, err)
		}
	}
	for _, d := range plan.Denied {
		demand.Nodes = append(demand.Nodes, d.Node)
	}
	r.wants(demand)
	if len(plan.Offers)+len(plan.Withdrawals) == 0 {
		r.last(demand)
		return plan.Again, nil
	}
	return plan.Again, r.grant(ctx, deciderRollout, nil, s.Grants(state, plan, now), nil, s.Fence)
}
