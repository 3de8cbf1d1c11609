package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/stage"
)

// deciderStages is the name under which reports show what was decided of stages.
const deciderStages = "stages"

// stages plans the stages of which something is expected. again is when time alone changes one of them.
func (g *granter) stages(ctx context.Context, r *round) (again time.Time, err error) {
	if idleReason(&r.State) != "" {
		return again, nil // the cycle says so
	}
	names, busy := stage.Expecting(&r.State)
	active := slices.DeleteFunc(names, func(name string) bool { return !busy[name] && g.settled[name] })
	r.forget(func(change string) bool {
		name, is := cluster.StageOf(change)
		return is && !slices.Contains(active, name)
	})
	gates, unknown := []string{}, false
	var errs []error
	for _, name := range active {
		gate, due, idle, err := g.stage(ctx, r, name)
		g.settled[name] = idle && !busy[name]
		switch {
		case gate != "":
			gates = append(gates, gate)
		case err != nil:
			unknown = true
		}
		if fatal(ctx, err) {
			return again, err // the next round plans again
		}
		errs, again = append(errs, err), pace.Earliest(again, due)
	}
	if !unknown {
		g.gates, g.gatesKnown = gates, true
	}
	g.problems.set(deciderStages, errors.Join(errs...))
	return again, nil
}

// stage plans one stage, and writes what it decides together with its events. It returns the run that its gate waits for, when
// time alone changes something, and whether nothing was left to do.
func (g *granter) stage(ctx context.Context, r *round, name string) (gate string, again time.Time, idle bool, err error) {
	stages := stage.New(g.store)
	documents, err := stages.Parse(name, r.State.Stages[name])
	if err != nil {
		return "", again, false, err
	}
	hosts, now := stage.HostsOf(&r.State, name)[name], time.Now()
	state := stage.State{
		Stage: name, Session: g.held.Session(), Spec: documents.Spec(), Hosts: hosts, Halted: r.State.Control.HaltedText(),
		Freezes: r.State.Control.Freezes, Quiet: r.ledger.Value.Quiet,
	}
	if state.Gate, err = g.stageGate(ctx, documents, hosts); err != nil {
		return "", again, false, fmt.Errorf("ask the gate of stage %q: %w", name, err)
	}
	demand := pace.Demand{Change: cluster.FilesChange(name), Open: stage.Open(name, hosts), Created: documents.Book.Since}
	if state.Places, err = r.account(demand); err != nil {
		return "", again, false, err
	}
	plan := stage.Plan(documents.Book, documents.Stops, state, now)
	demand.Nodes = plan.Denied
	r.wants(demand)
	if len(plan.Offers) == 0 {
		r.last(demand)
	}
	if step := plan.Book.Step; step != nil && step.Gate != nil {
		gate = step.Gate.Run
	}
	do, grants := stages.Write(documents, plan), documents.Granted(plan)
	if do == nil {
		return gate, plan.Again, demand.Open == 0 && plan.Book.Step == nil, nil
	}
	return gate, now, false, r.grant(ctx, deciderStages, plan.Decisions, grants, do, func(t *kv.Txn) {
		if len(grants) > 0 {
			change.Fence(t, r.State.Indexes)
		}
	})
}

// stageGate returns what is known of the run that the gate of a stage names, and asks for the
// run if it does not exist. Hosts name the workflow, so only the orchestrator's
// own list lets it run.
func (g *granter) stageGate(ctx context.Context, documents stage.Documents, hosts []stage.Host) (*pace.GateRun, error) {
	step := documents.Book.Step
	if step == nil || step.Gate == nil || step.Gate.Run == "" {
		return nil, nil //nolint:nilnil // nil: nothing is asked
	}
	id, workflow := step.Gate.Run, stage.PolicyOf(hosts).Gate.Workflow
	if !slices.Contains(g.o.StageGates, workflow) {
		return &pace.GateRun{ID: id, Answer: pace.GateUnanswered, Line: "\"stage_gates\" of the orchestrator does not list it"}, nil
	}
	known, missing, err := gateRun(ctx, g.store, id, workflow)
	if missing {
		facts := rollout.FactsOfStageGate(documents.Stage, step.String(), *step.Gate, step.HostNames())
		return nil, askGate(ctx, g.store, id, workflow, "stage "+documents.Stage, facts)
	}
	return known, err
}
