package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
)

// Decider is asked in each cycle what is to be done. It must not keep what it
// is given, nor change it, and should return within a second: a slow one delays
// its cluster. What it says in one cycle it has to be able to say again in the
// next, when what it wanted was not written.
type Decider interface {
	Name() string
	Decide(ctx context.Context, in Input) error
}

// Input is what is known when it is to be decided.
type Input struct {
	Now     time.Time
	State   cluster.State
	Members []cluster.Member // complete: filters match them

	// Store is fenced by the orchestrator's lock.
	Store   *kv.Store
	Session string // of the lock
	// StageGates are the runs that gates of stages wait for; StageGatesKnown: it is
	// known of all stages.
	StageGates      []string
	StageGatesKnown bool
	places          *places
	// Refresh reads the state and the members again, for who must know of one that joined a
	// moment ago.
	Refresh func(ctx context.Context) (cluster.State, []cluster.Member, error)
	// Record journals decisions with what also, if not nil, adds, both or neither. An error of which
	// IsDecisionConflict tells that it is of also's operations changes nothing; after any other the decider must return.
	Record func(ctx context.Context, decisions []Decision, also func(*kv.Txn)) error
}

// decide asks the deciders and journals what they say. One that fails keeps
// none of the others from deciding; only what ends the cycle is returned.
func (t *term) decide(ctx context.Context, in Input, r *Report) error {
	in.places = t.places
	in.StageGates, in.StageGatesKnown = t.grants.gates.Get()
	for _, d := range t.o.Deciders {
		in.Record = func(ctx context.Context, decisions []Decision, also func(*kv.Txn)) error {
			return t.record(ctx, d.Name(), decisions, also, r)
		}
		err := d.Decide(ctx, in)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.problem("decider", d.Name(), err)
		}
		if t.journal == nil {
			return fmt.Errorf("carry out a decision of %s: %w", d.Name(), errors.Join(err, errJournalClosed))
		}
	}
	return nil
}

// record journals decisions with what carries them out.
func (t *term) record(ctx context.Context, decider string, decisions []Decision, also func(*kv.Txn), r *Report) error {
	if len(decisions) == 0 {
		return commit(ctx, t.store, also)
	}
	if t.journal == nil {
		return errJournalClosed
	}
	if err := t.save(ctx, t.journal.View(), decisionEvents(decisions, time.Time{}), time.Now(), also, r); err != nil {
		return err
	}
	r.decided(decider, decisions)
	return nil
}

var errJournalClosed = errors.New("what is current has to be read again")

// nextDue returns when the next rule with a schedule is due; the zero time: never.
func nextDue(deciders []Decider) (due time.Time) {
	for _, d := range deciders {
		if d, is := d.(runsDecider); is {
			due = pace.Earliest(due, d.runs.NextDue())
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
