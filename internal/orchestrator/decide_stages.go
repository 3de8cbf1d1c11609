package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/stage"
)

// ForStages returns the decider that gives turns to the hosts of a cluster's stages.
// c reads their reports.
func ForStages(c *cluster.Cluster) Decider {
	return &stagesDecider{reports: c.Reports(), settled: map[string]string{}}
}

type stagesDecider struct {
	reports kv.Tree[cluster.Report]
	// settled are the stages in which nothing was left to do, and for which session
	// that was found. Their documents are read again once a host reports news.
	settled map[string]string
}

// Name implements Decider.
func (*stagesDecider) Name() string { return "stages" }

// Decide implements Decider.
func (d *stagesDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	hosts := stage.HostsOf(&in.State)
	var all []Decision
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		decisions, err := d.stage(ctx, in, name, hosts[name])
		all = append(all, decisions...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// stage plans one stage. What is offered alone is written at once; with events it is
// part of the decisions, so that it happens with them or not at all.
func (d *stagesDecider) stage(ctx context.Context, in Input, name string, hosts []stage.Host) ([]Decision, error) {
	busy := slices.ContainsFunc(hosts, func(h stage.Host) bool {
		return h.Report.Wants != "" || h.Report.State != "" && h.Report.State != cluster.StageDone
	})
	if !busy && d.settled[name] == in.Session {
		return nil, nil
	}
	stages := stage.New(in.Store)
	documents, err := stages.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	reports, err := stages.Reports(ctx, d.reports, documents)
	if err != nil {
		return nil, err
	}
	control := in.State.Control
	state := stage.State{
		Stage: name, Session: in.Session, Hosts: stage.WithReports(hosts, &in.State, name, reports, documents),
		Halted: control.Paused != nil || control.ObserveOnly != nil,
	}
	plan := stage.Plan(documents.Turns, documents.Stops, state, in.Now)
	delete(d.settled, name)
	if !busy && len(plan.Turns.Open) == 0 {
		d.settled[name] = in.Session
	}
	do := stages.Write(documents, plan, in.State.Indexes[cluster.KeyControl])
	if do == nil {
		return nil, nil
	}
	if len(plan.Events) == 0 {
		t := in.Store.Txn()
		do(t)
		if _, err := t.Commit(ctx); err != nil && !errors.Is(err, kv.ErrConflict) {
			return nil, err
		}
		return nil, nil // after a conflict the next cycle plans again
	}
	decisions := make([]Decision, len(plan.Events))
	for i, e := range plan.Events {
		decisions[i] = Decision{Kind: e.Kind, Node: e.Node, Text: e.Text, After: cmp.Or(e.Node, name), Together: i > 0}
	}
	decisions[0].Do = do
	return decisions, nil
}
