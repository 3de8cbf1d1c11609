package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
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
	places          *places
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
	return IsDecisionConflict(err) || errors.Is(err, kv.ErrBadKey) || consul.IsPermanent(err)
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
