package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
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
	Store *kv.Store
	Epoch uint64    // of the lock
	Since time.Time // that the lock is held
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
}

func (d Decision) event() Event {
	text := d.Text
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return Event{Kind: d.Kind, Node: d.Node, Service: d.Service, Category: d.Category, Text: text, Before: d.Before, After: d.After}
}

// decide asks the deciders and journals what they say. One that fails keeps
// none of the others from deciding; only what ends the cycle is returned.
func (t *term) decide(ctx context.Context, in Input, r *Report) error {
	for _, d := range t.o.Deciders {
		in.Record = func(ctx context.Context, decisions []Decision, also func(*kv.Txn)) error {
			return t.record(ctx, d.Name(), decisions, also, r)
		}
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
	_, err := d.runs.Decide(ctx, in.Store, runs.Observed{
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
			Kind: RolloutAdopted, Before: s.Document.Version, After: next.Version, Do: r.Replace(s, next), Again: true,
			Text: fmt.Sprintf("version %s was written past the rollout: all hosts begin at once", next.Version),
		}}, nil
	}
	if !s.Exists {
		return nil, nil
	}
	if err := rollout.CheckState(&in.State); err != nil {
		return nil, err // which hosts take part is not known
	}
	if s.Document.Over() || s.Document.Stopped != nil {
		return nil, nil // a plan changes nothing about it
	}
	state, err := rollout.StateOf(&in.State, s)
	if err != nil {
		return nil, err
	}
	state.PlannedSince = in.Since
	downSince(state.Members, in.View)
	plan := rollout.Plan(s.Document, state, in.Now)
	do := r.Replace(s, plan.Document)
	if do == nil {
		return nil, nil
	}
	decisions := make([]Decision, len(plan.Decisions))
	for i, p := range plan.Decisions {
		decisions[i] = Decision{Kind: rolloutKind(p.Kind), Text: p.Text, Reason: p.Reason, After: plan.Document.Version, Together: i > 0, Again: true}
	}
	if len(decisions) == 0 { // only numbers and times
		t := in.Store.Txn()
		do(t)
		_, err := t.Commit(ctx)
		return nil, err
	}
	decisions[0].Do = do
	return decisions, nil
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
