package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/stage"
)

// ForStages returns the decider that gives turns to the hosts of a cluster's stages.
// c reads their reports; gates are the workflows that it may ask.
func ForStages(c *cluster.Cluster, gates ...string) Decider {
	return &stagesDecider{reports: c.Reports(), gates: gates, settled: map[string]string{}}
}

type stagesDecider struct {
	reports kv.Tree[cluster.Report]
	gates   []string
	// waiting are the gates that stages wait for, as of the last plan of session.
	waiting map[string]waitingGate
	session string
	seen    map[string]stageSeen // replaced as a whole in each cycle
	// settled are the stages in which nothing was left to do, and for which session
	// that was found. Their documents are read again once a host reports news.
	settled map[string]string
}

// Name implements Decider.
func (*stagesDecider) Name() string { return "stages" }

// waitingGate is a gate that a stage waits for.
type waitingGate struct {
	run  string    // empty: it is not asked now
	next time.Time // when time changes it; zero: it does not
}

// stageGates returns the runs that gates of stages wait for. known is false until an
// orchestrator has read them all.
func stageGates(deciders []Decider, session string) (ids []string, known bool) {
	for _, d := range deciders {
		d, is := d.(*stagesDecider)
		if !is {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(d.waiting)) {
			if id := d.waiting[name].run; id != "" {
				ids = append(ids, id)
			}
		}
		return ids, d.waiting != nil && d.session == session
	}
	return nil, true
}

// stagesSeen returns the stages as the last cycle of session saw them.
func stagesSeen(deciders []Decider, session string) (all map[string]stageSeen, ok bool) {
	for _, d := range deciders {
		if d, is := d.(*stagesDecider); is {
			return d.seen, d.seen != nil && d.session == session
		}
	}
	return nil, false
}

// nextDue returns when time alone changes a gate; the zero time: never.
func (d *stagesDecider) nextDue() (due time.Time) {
	for _, g := range d.waiting {
		if !g.next.IsZero() && (due.IsZero() || g.next.Before(due)) {
			due = g.next
		}
	}
	return due
}

// Decide implements Decider.
func (d *stagesDecider) Decide(ctx context.Context, in Input) (decisions []Decision, err error) {
	waiting := map[string]waitingGate{}
	defer func() {
		if d.waiting, d.session = waiting, in.Session; err != nil {
			d.waiting = nil // not known of all stages
		}
	}()
	hosts := stage.HostsOf(&in.State)
	before := d.seen
	if d.session != in.Session {
		before = nil // another orchestrator decided meanwhile
	}
	d.seen = map[string]stageSeen{}
	var all []Decision
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		d.seen[name] = seeStage(hosts[name], before[name].stopped, before[name], in.Now)
		decisions, gate, err := d.stage(ctx, in, name, hosts[name])
		if gate != nil {
			waiting[name] = *gate
		}
		all = append(all, decisions...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// stage plans one stage. What is offered alone is written at once; with events it is
// part of the decisions, so that it happens with them or not at all.
func (d *stagesDecider) stage(ctx context.Context, in Input, name string, hosts []stage.Host) ([]Decision, *waitingGate, error) {
	busy := slices.ContainsFunc(hosts, func(h stage.Host) bool {
		state := h.Report.Shown()
		return state != "" && state != cluster.StageDone
	})
	if !busy && d.settled[name] == in.Session {
		return nil, nil, nil
	}
	stages := stage.New(in.Store)
	documents, err := stages.Load(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	reports, err := stages.Reports(ctx, d.reports, documents)
	if err != nil {
		return nil, nil, err
	}
	control := in.State.Control
	state := stage.State{
		Stage: name, Session: in.Session, Hosts: stage.WithReports(hosts, &in.State, name, reports, documents),
		Halted: control.Paused != nil || control.ObserveOnly != nil,
	}
	if state.Gate, err = d.gate(ctx, in, documents, state.Hosts); err != nil {
		return nil, nil, fmt.Errorf("ask the gate of stage %q: %w", name, err)
	}
	plan := stage.Plan(documents.Turns, documents.Stops, state, in.Now)
	gate := waitingFor(documents, plan, in.Now)
	seen := d.seen[name]
	seen.stopped = plan.Stops.Unresumed()
	d.seen[name] = seen
	delete(d.settled, name)
	do := stages.Write(documents, plan, in.State.Indexes[cluster.KeyControl])
	if do == nil {
		if !busy && len(plan.Turns.Open) == 0 && plan.Turns.Step == nil {
			d.settled[name] = in.Session
		}
		return nil, gate, nil
	}
	if len(plan.Events) == 0 {
		t := in.Store.Txn()
		do(t)
		if _, err := t.Commit(ctx); err != nil && !errors.Is(err, kv.ErrConflict) {
			return nil, nil, err
		}
		return nil, gate, nil // after a conflict the next cycle plans again
	}
	decisions := make([]Decision, len(plan.Events))
	for i, e := range plan.Events {
		decisions[i] = Decision{Kind: e.Kind, Node: e.Node, Text: e.Text, After: cmp.Or(e.Node, name), Together: i > 0}
	}
	decisions[0].Do = do
	return decisions, gate, nil
}

// waitingFor returns the gate that a stage waits for: the run of the document, which
// the plan may have named just now, and when time changes the gate.
func waitingFor(d stage.Documents, p stage.Planned, now time.Time) *waitingGate {
	step := p.Turns.Step
	if step == nil || step.Gate == nil {
		return nil
	}
	g := waitingGate{run: step.Gate.Run, next: p.GateNext}
	if before := d.Turns.Step; g.run != "" && (before == nil || before.Gate == nil || before.Gate.Run != g.run) {
		g.next = now // the next cycle asks for the run
	}
	return &g
}

// gate returns what is known of the run that the gate of a stage names, and asks for the
// run if it does not exist. Hosts name the workflow, so only the orchestrator's
// own list lets it run.
func (d *stagesDecider) gate(ctx context.Context, in Input, documents stage.Documents, hosts []stage.Host) (*rollout.GateRun, error) {
	step := documents.Turns.Step
	if step == nil || step.Gate == nil || step.Gate.Run == "" {
		return nil, nil //nolint:nilnil // nil: nothing is asked
	}
	id, workflow := step.Gate.Run, stage.PolicyOf(hosts).Gate.Workflow
	if !slices.Contains(d.gates, workflow) {
		return &rollout.GateRun{ID: id, Answer: rollout.GateUnanswered, Line: "\"stage_gates\" of the orchestrator does not list it"}, nil
	}
	known, missing, err := gateRun(ctx, in, id, workflow)
	if missing {
		facts := rollout.FactsOfStageGate(documents.Stage, step.String(), *step.Gate, step.HostNames())
		return nil, askGate(ctx, in, id, workflow, "stage "+documents.Stage, facts)
	}
	return known, err
}
