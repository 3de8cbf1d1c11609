package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

// Decider is asked in each cycle what is to be done. It must not keep what it
// is given, nor change it, and should return within a second: a slow one delays
// its cluster. What it says in one cycle it has to be able to say again in the
// next, when what it wanted was not written.
type Decider interface {
	Name() string
	Decide(ctx context.Context, in Input) ([]Decision, error)
}

// Input is what is known when it is to be decided.
type Input struct {
	Now      time.Time
	View     View    // as it is saved
	Previous View    // the one before
	Events   []Event // how they differ, as journalled; none when nothing does

	State   cluster.State
	Members []cluster.Member // complete: filters match them

	// Paused, if not nil, says why nothing new may start.
	Paused *cluster.Hold
	// Store is fenced by the orchestrator's lock.
	Store   *kv.Store
	Epoch   uint64    // of the lock
	Session string    // of the lock
	Since   time.Time // that the lock is held
	// StageGates are the runs that gates of stages wait for; StageGatesKnown: it is
	// known of all stages.
	StageGates      []string
	StageGatesKnown bool
	// Refresh reads the members again, for who must know of one that joined a
	// moment ago.
	Refresh func(ctx context.Context) ([]cluster.Member, error)
	// Record carries decisions out at once, for who needs many transactions: their
	// events are journalled with what also, if not nil, adds, or nothing happens.
	// Their Do is not asked. An error of which Own tells that it is of
	// also's operations changes nothing; after any other the decider must return.
	Record func(ctx context.Context, decisions []Decision, also func(*kv.Txn)) error
}

// Decision is one thing that was decided; it becomes an event.
type Decision struct {
	Kind     string // of the event, snake_case: rollout_paused
	Node     string
	Service  string
	Category string
	Text     string // what: "batch 2 of 3 begins"
	Reason   string // why
	Before   string
	After    string
	// Do adds what carries the decision out: it happens in the transaction that
	// journals the event, or not at all. When an operation does not hold the
	// decision is dropped, and reported; it is up to the next cycle then. nil:
	// the decider has done it already, or there is nothing to do.
	Do func(t *kv.Txn)
	// Together: it stands and falls with the decision before it.
	Together bool
	// Again: when it is dropped the decider is asked again at once, on the same
	// Input, a few times.
	Again bool
	// AuthorUnknown: it is about a change whose author is not recorded.
	AuthorUnknown bool
}

func (d Decision) event() Event {
	text := d.Text
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return Event{Kind: d.Kind, Node: d.Node, Service: d.Service, Category: d.Category, Text: text, Before: d.Before, After: d.After, AuthorUnknown: d.AuthorUnknown}
}

// decide asks the deciders and journals what they say. One that fails keeps
// none of the others from deciding; only what ends the cycle is returned.
func (t *term) decide(ctx context.Context, in Input, r *Report) error {
	for _, d := range t.o.Deciders {
		in.Record = func(ctx context.Context, decisions []Decision, also func(*kv.Txn)) error {
			return t.record(ctx, d.Name(), decisions, also, r)
		}
		in.StageGates, in.StageGatesKnown = stageGates(t.o.Deciders, in.Session)
		for left := maxTries - 1; ; left-- {
			decisions, err := d.Decide(ctx, in)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.problem("decider", d.Name(), err)
			}
			if t.journal == nil {
				return fmt.Errorf("carry out a decision of %s: %w", d.Name(), errors.Join(err, errJournalClosed))
			}
			again, err := t.carryOut(ctx, d.Name(), decisions, in.Now, r, left > 0)
			if err != nil {
				return err
			}
			if !again {
				break
			}
		}
	}
	return nil
}

// maxTries is how often a decider is asked in one cycle whose decisions others
// overtake.
const maxTries = 10

// carryOut journals decisions: the ones that were carried out already together,
// each of the others with what carries it out. again says that what was dropped
// should be decided again now, if it may be.
func (t *term) carryOut(ctx context.Context, decider string, decisions []Decision, now time.Time, r *Report, may bool) (again bool, err error) {
	var done []Event
	for len(decisions) > 0 && !again {
		n := 1
		for n < len(decisions) && decisions[n].Together {
			n++
		}
		group := decisions[:n]
		decisions = decisions[n:]
		events := make([]Event, n)
		for i, d := range group {
			events[i] = d.event()
		}
		var dropped error
		if group[0].Do == nil {
			done = append(done, events...)
		} else if _, dropped = t.save(ctx, t.journal.View(), events, now, group[0].Do, r); dropped != nil {
			if !isDecisionError(dropped) {
				return false, fmt.Errorf("carry out a decision of %s: %w", decider, dropped)
			}
			again = may && group[0].Again
		}
		for _, d := range group {
			if !again {
				r.decided(decider, d, dropped)
			}
		}
	}
	if len(done) > 0 {
		_, err = t.save(ctx, t.journal.View(), done, now, nil, r)
	}
	return again, err
}

var errJournalClosed = errors.New("what is current has to be read again")

// record journals decisions with what carries them out.
func (t *term) record(ctx context.Context, decider string, decisions []Decision, also func(*kv.Txn), r *Report) error {
	if t.journal == nil {
		return errJournalClosed
	}
	events := make([]Event, len(decisions))
	for i, d := range decisions {
		events[i] = d.event()
	}
	if _, err := t.save(ctx, t.journal.View(), events, time.Now(), also, r); err != nil {
		return err
	}
	for _, d := range decisions {
		r.decided(decider, d, nil)
	}
	return nil
}

// isDecisionError reports whether err, of saving, is of the decision alone: nothing was
// written then.
func isDecisionError(err error) bool {
	return IsDecisionConflict(err) || errors.Is(err, kv.ErrBadKey) || errors.Is(err, consul.ErrTooLarge)
}

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
func (d runsDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	gate, unreadable := rollout.GateRunIn(in.Store, &in.State)
	_, err := d.runs.Decide(ctx, in.Store, runs.Observed{
		Gates: append(slices.Clone(in.StageGates), gate), GatesKnown: unreadable == nil && in.StageGatesKnown,
		Node: d.node, Members: in.Members, Profile: in.State.Profile, Control: in.State.Control, Now: in.Now, Refresh: in.Refresh,
		Record: func(ctx context.Context, decided []runs.Decision, also func(*kv.Txn)) error {
			decisions := make([]Decision, len(decided))
			for i, p := range decided {
				decisions[i] = Decision{Kind: p.Kind, Node: p.Node, Text: p.Text, After: p.Run}
			}
			return in.Record(ctx, decisions, also)
		},
	})
	return nil, err
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

// nextDue returns when the next rule with a schedule is due, or the gate of a stage
// changes; the zero time: never.
func nextDue(deciders []Decider) (due time.Time) {
	for _, d := range deciders {
		var at time.Time
		switch d := d.(type) {
		case runsDecider:
			at = d.runs.NextDue()
		case *stagesDecider:
			at = d.nextDue()
		}
		if due.IsZero() || !at.IsZero() && at.Before(due) {
			due = at
		}
	}
	return due
}

// ForRollout returns the decider that moves a cluster's rollout from phase to
// phase. Hosts are paced beside it, see granter.
func ForRollout(r *rollout.Rollouts) Decider { return rolloutDecider{r} }

type rolloutDecider struct{ rollouts *rollout.Rollouts }

// Name implements Decider.
func (rolloutDecider) Name() string { return "rollout" }

// Decide implements Decider. The plan is part of its decisions, so that it happens
// with them or not at all; when the rollout was changed in between it is rebuilt.
func (d rolloutDecider) Decide(ctx context.Context, in Input) ([]Decision, error) {
	r := d.rollouts.In(in.Store)
	s, err := r.Load(ctx)
	if err != nil {
		return nil, err
	}
	if s.Damaged != nil {
		return nil, s.Damaged // hosts go by what they read last
	}
	if next, ok := s.Adopted(in.Now); ok {
		return []Decision{{
			Kind: RolloutAdopted, AuthorUnknown: true, Before: s.Document.Version, After: next.Version, Do: r.Replace(s, next), Again: true,
			Text: fmt.Sprintf("version %s was written past the rollout: all hosts begin at once", next.Version),
		}}, nil
	}
	if !s.Exists {
		return nil, nil
	}
	if err := rollout.CheckState(&in.State); err != nil {
		return nil, err // which hosts take part is not known
	}
	if s.Unrecorded() {
		return d.recordEnd(ctx, r, in, s)
	}
	if s.Document.Over() || s.Document.Stopped != nil {
		return nil, commit(ctx, in.Store, r.Know(s)) // a plan changes nothing about it
	}
	state, err := rollout.StateOf(&in.State, s)
	if err != nil {
		return nil, err
	}
	state.PlannedSince = in.Since
	downSince(state.Members, in.View)
	if state.Gate, err = rolloutGate(ctx, in, s.Document, state); err != nil {
		return nil, fmt.Errorf("ask the gate of the rollout: %w", err)
	}
	plan := rollout.Plan(s.Document, state, in.Now)
	if r.Replace(s, plan.Document) == nil {
		return nil, commit(ctx, in.Store, r.Know(s))
	}
	names, err := r.RecordNames(ctx)
	if err != nil {
		return nil, err
	}
	do := r.ReplaceRecorded(s, plan.Document, state, names, in.Now)
	decisions := make([]Decision, len(plan.Decisions))
	for i, p := range plan.Decisions {
		decisions[i] = Decision{Kind: rolloutKind(p.Kind), Text: p.Text, Reason: p.Reason, After: plan.Document.Version, Together: i > 0, Again: true}
	}
	if len(decisions) == 0 { // only numbers and times
		return nil, commit(ctx, in.Store, do)
	}
	decisions[0].Do = do
	return decisions, nil
}

// rolloutGate returns what is known of the run that the document's gate names, and
// asks for the run if it does not exist.
func rolloutGate(ctx context.Context, in Input, d rollout.Document, state rollout.State) (*rollout.GateRun, error) {
	if d.Gate == nil || d.Gate.Run == "" {
		return nil, nil //nolint:nilnil // nil: nothing is asked
	}
	known, missing, err := gateRun(ctx, in, d.Gate.Run, d.Policy.Gate.Workflow)
	if missing {
		return nil, askGate(ctx, in, d.Gate.Run, d.Policy.Gate.Workflow, "rollout of "+d.Version, rollout.FactsOfGate(d, state, in.Now))
	}
	return known, err
}

// gateRun returns what is known of the run of a gate.
func gateRun(ctx context.Context, in Input, id, workflow string) (known *rollout.GateRun, missing bool, err error) {
	g, err := runs.New(in.Store).GateAnswer(ctx, id, workflow)
	switch {
	case errors.Is(err, runs.ErrNoRun):
		return nil, true, nil
	case errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrNewer):
		return &rollout.GateRun{ID: id, Answer: rollout.GateUnanswered, Line: err.Error()}, false, nil
	case err != nil:
		return nil, false, err
	}
	return &g, false, nil
}

// askGate asks for the run of a gate. A document named the run in an earlier cycle, so it is
// created once, whichever orchestrator dies in between.
func askGate(ctx context.Context, in Input, id, workflow, by string, f rollout.GateFacts) error {
	q, err := runs.GateRequest(workflow, f)
	if err != nil {
		return err
	}
	return runs.New(in.Store).AskGate(ctx, id, q, by)
}

// commit carries out do in a transaction of its own; nil: there is nothing to do.
func commit(ctx context.Context, s *kv.Store, do func(*kv.Txn)) error {
	if do == nil {
		return nil
	}
	t := s.Txn()
	do(t)
	_, err := t.Commit(ctx)
	return err
}

// recordEnd records a rollout that a command ended.
func (d rolloutDecider) recordEnd(ctx context.Context, r *rollout.Rollouts, in Input, s rollout.Stored) ([]Decision, error) {
	state, err := rollout.StateOf(&in.State, s)
	if err != nil {
		return nil, err
	}
	names, err := r.RecordNames(ctx)
	if err != nil {
		return nil, err
	}
	f := s.Ended(state)
	do := r.Record(s, f, names)
	one := Decision{Reason: f.Why, Before: f.Version, Do: do, Again: true}
	switch f.Outcome {
	case rollout.OutcomeDone: // its event was journalled when it was decided
		return nil, commit(ctx, in.Store, do)
	case rollout.OutcomeAborted:
		one.Kind, one.Text = rolloutKind(rollout.DecideAbort), "the rollout of "+f.Version+" is aborted"
	default:
		one.Kind, one.Text = rolloutKind(rollout.DecideSupersede), "the rollout of "+f.Version+" ended before all members ran it"
	}
	return []Decision{one}, nil
}

// downSince fills in since when members are down, as far as that is known: of
// one whose host is up, but whose agent is not, since it got its grant.
func downSince(members []rollout.Member, v View) {
	for i := range members {
		m := &members[i]
		if m.Up() {
			continue
		}
		m.DownSince = m.Answer.Since
		if n := v.Nodes[m.Node]; n.Life == cluster.LivenessDown {
			m.DownSince = n.LifeSince
		}
	}
}
