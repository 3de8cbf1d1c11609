package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/stage"
)

// ForStages returns the decider that gives turns to the hosts of a cluster's stages.
// gates are the workflows that it may ask.
func ForStages(gates ...string) Decider {
	return &stagesDecider{gates: gates, settled: map[string]string{}}
}

type stagesDecider struct {
	gates []string
	// waiting are the gates that stages wait for, as of the last plan of session.
	waiting map[string]waitingGate
	session string
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

// nextDue returns when time alone changes a gate or opens a window; the zero time: never.
func (d *stagesDecider) nextDue() (due time.Time) {
	for _, g := range d.waiting {
		if !g.next.IsZero() && (due.IsZero() || g.next.Before(due)) {
			due = g.next
		}
	}
	return due
}

// Decide implements Decider.
func (d *stagesDecider) Decide(ctx context.Context, in Input) (err error) {
	waiting, interrupted := map[string]waitingGate{}, false
	defer func() {
		if d.waiting, d.session = waiting, in.Session; err != nil || interrupted {
			d.waiting = nil // not known of all stages
		}
	}()
	hosts := stage.HostsOf(&in.State)
	var active []string
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if busy(hosts[name]) || d.settled[name] != in.Session {
			active = append(active, name)
		}
	}
	if len(active) == 0 {
		return nil
	}
	var errs []error
	err = in.places.plan(ctx, func(ctx context.Context, r *round) error {
		if interrupted = idleReason(&r.State) != ""; interrupted {
			return nil // since the cycle began; the next one says so
		}
		r.forget(func(change string) bool {
			name, is := strings.CutPrefix(change, changeStage)
			return is && !slices.Contains(active, name)
		})
		hosts := stage.HostsOf(&r.State)
		for _, name := range active {
			for i := range hosts[name] {
				if e, granted := r.granted[hosts[name][i].Node]; granted {
					hosts[name][i].Grants = e
				}
			}
			gate, err := d.stage(ctx, in, r, name, hosts[name])
			if gate != nil {
				waiting[name] = *gate
			}
			if overtaken(err) {
				return err // the next round plans again
			}
			errs = append(errs, err)
		}
		return nil
	})
	if overtaken(err) {
		interrupted, err = true, nil
	}
	return errors.Join(append(errs, err)...)
}

// changeStage, followed by its name, names a stage among the changes that wait for a place.
const changeStage = "stage "

// busy reports whether something is expected of one of the hosts.
func busy(hosts []stage.Host) bool {
	return slices.ContainsFunc(hosts, func(h stage.Host) bool {
		state := h.Report.Shown()
		return state != "" && state != cluster.StageDone
	})
}

// stage plans one stage, and writes what it decides together with its events.
func (d *stagesDecider) stage(ctx context.Context, in Input, r *round, name string, hosts []stage.Host) (*waitingGate, error) {
	stages := stage.New(in.Store)
	documents, err := stages.Parse(name, r.State.Stages[name])
	if err != nil {
		return nil, err
	}
	control := r.State.Control
	state := stage.State{
		Stage: name, Session: in.Session, Spec: documents.Spec(), Hosts: hosts, Halted: control.HaltedText(), Freezes: control.Freezes, Quiet: r.ledger.Value.Quiet,
	}
	if state.Gate, err = d.gate(ctx, in, documents, state.Hosts); err != nil {
		return nil, fmt.Errorf("ask the gate of stage %q: %w", name, err)
	}
	demand := pace.Demand{Change: changeStage + name, Open: stage.Open(name, hosts), Created: documents.Book.Since}
	if state.Places, err = r.account(demand); err != nil {
		return nil, err
	}
	plan := stage.Plan(documents.Book, documents.Stops, state, in.Now)
	gate := waitingFor(documents, plan, in.Now)
	demand.Nodes = plan.Denied
	r.wants(demand)
	if len(plan.Offers) == 0 {
		r.last(demand)
	}
	delete(d.settled, name)
	do, grants := stages.Write(documents, plan), documents.Granted(plan)
	if do == nil {
		if !busy(hosts) && demand.Open == 0 && plan.Book.Step == nil {
			d.settled[name] = in.Session
		}
		return gate, nil
	}
	decisions := make([]Decision, len(plan.Events))
	for i, e := range plan.Events {
		decisions[i] = Decision{Kind: e.Kind, Node: e.Node, Text: e.Text, After: cmp.Or(e.Node, name)}
	}
	write := func(also func(*kv.Txn)) error {
		both := func(t *kv.Txn) { do(t); also(t) }
		return in.Record(ctx, decisions, both)
	}
	if len(grants) == 0 {
		return gate, write(func(*kv.Txn) {})
	}
	return gate, r.offer(ctx, plan.Offers, grants, func(also func(*kv.Txn)) error {
		return write(func(t *kv.Txn) { change.Fence(t, r.State.Indexes); also(t) })
	})
}

// waitingFor returns what a stage waits for: the run of its gate, which
// the plan may have named just now, and when time changes the gate or opens the window.
func waitingFor(d stage.Documents, p stage.Planned, now time.Time) *waitingGate {
	g := waitingGate{next: p.Again}
	if step := p.Book.Step; step != nil && step.Gate != nil {
		g.run = step.Gate.Run
	}
	if before := d.Book.Step; g.run != "" && (before == nil || before.Gate == nil || before.Gate.Run != g.run) {
		g.next = now // the next cycle asks for the run
	}
	return &g
}

// gate returns what is known of the run that the gate of a stage names, and asks for the
// run if it does not exist. Hosts name the workflow, so only the orchestrator's
// own list lets it run.
func (d *stagesDecider) gate(ctx context.Context, in Input, documents stage.Documents, hosts []stage.Host) (*pace.GateRun, error) {
	step := documents.Book.Step
	if step == nil || step.Gate == nil || step.Gate.Run == "" {
		return nil, nil //nolint:nilnil // nil: nothing is asked
	}
	id, workflow := step.Gate.Run, stage.PolicyOf(hosts).Gate.Workflow
	if !slices.Contains(d.gates, workflow) {
		return &pace.GateRun{ID: id, Answer: pace.GateUnanswered, Line: "\"stage_gates\" of the orchestrator does not list it"}, nil
	}
	known, missing, err := gateRun(ctx, in.Store, id, workflow)
	if missing {
		*in.asked = true
		facts := rollout.FactsOfStageGate(documents.Stage, step.String(), *step.Gate, step.HostNames())
		return nil, askGate(ctx, in.Store, id, workflow, "stage "+documents.Stage, facts)
	}
	return known, err
}
