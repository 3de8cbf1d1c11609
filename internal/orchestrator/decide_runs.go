package orchestrator

import (
	"context"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
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
func (d runsDecider) Decide(ctx context.Context, in Input) (err error) {
	_, rules := in.State.Profile.Params[runs.ParamRules]
	idle := len(in.State.ActiveRuns)+len(d.runs.Denied()) == 0 && !rules
	if in.State.Control.Budget == nil || idle {
		err = d.decide(ctx, in, nil)
	} else {
		err = in.places.plan(ctx, func(ctx context.Context, r *round) error {
			if idleReason(&r.State) != "" {
				return nil // since the cycle began; the next one says so
			}
			return d.decide(ctx, in, r)
		})
	}
	if overtaken(err) {
		err = nil // the next cycle plans again
	}
	return err
}

// decide plans and writes; r is nil in a cluster without a budget, and while nothing can
// begin. The state of the cycle is not older than what Decide wrote last, which was in the cycle before.
func (d runsDecider) decide(ctx context.Context, in Input, r *round) error {
	state := &in.State
	if r != nil {
		state = &r.State
	}
	gate, unreadable := rollout.GateRunIn(in.Store, &in.State)
	observed := runs.Observed{
		Gates: append(slices.Clone(in.StageGates), gate), GatesKnown: unreadable == nil && in.StageGatesKnown,
		Node: d.node, State: *state, Members: in.Members, Now: in.Now, Refresh: in.Refresh,
		Record: func(ctx context.Context, decided []runs.Decision, also func(*kv.Txn)) error {
			decisions := make([]Decision, len(decided))
			for i, p := range decided {
				decisions[i] = Decision{Kind: p.Kind, Node: p.Node, Text: p.Text, After: p.Run}
				if p.Run != "" {
					decisions[i].Change = cluster.RunChange(p.Run)
				}
			}
			return in.Record(ctx, decisions, also)
		},
		Barred: func(node string) string { return budget.Barred(state, node) },
		Offer: func(ctx context.Context, nodes []string, commit func(also func(*kv.Txn)) error) error {
			// A pause, a hold or a budget that came meanwhile counts.
			control := func(t *kv.Txn) { t.CheckIndex(cluster.KeyControl, state.Indexes[cluster.KeyControl]) }
			if r == nil {
				return commit(control)
			}
			return r.offer(ctx, nodes, func(swap func(*kv.Txn)) error {
				return commit(func(t *kv.Txn) { control(t); swap(t) })
			})
		},
	}
	if r == nil {
		_, err := d.runs.Decide(ctx, in.Store, observed)
		return err
	}
	if _, err := r.account(pace.Demand{}); err != nil {
		return err
	}
	observed.Left = func(d pace.Demand, taken []string) *pace.Account { return r.left(d, taken...) }
	_, err := d.runs.Decide(ctx, in.Store, observed)
	denied := d.runs.Denied()
	for _, demand := range denied {
		r.wants(demand)
		r.last(demand)
	}
	r.forget(func(name string) bool {
		return strings.HasPrefix(name, runs.ChangeOf("")) && !slices.ContainsFunc(denied, func(d pace.Demand) bool { return d.Change == name })
	})
	return err
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
