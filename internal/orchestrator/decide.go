package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/journal"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/view"
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
	View     view.View    // as it is saved
	Previous view.View    // the one before
	Events   []view.Event // how they differ, as journalled; none when nothing does

	cluster.Observation // its Members are complete: filters match them
	// Documents are what members report, also those that cannot be read.
	Documents map[string]kv.Leaf[nodes.Document]

	// Paused, if not nil, says why nothing new may start.
	Paused *cluster.Hold
	// Store is fenced by the orchestrator's lock.
	Store *kv.Store
	Epoch uint64 // of the lock
	// Refresh reads the members anew, for who must know of one that joined a
	// moment ago.
	Refresh func(ctx context.Context) ([]cluster.Member, error)
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
}

func (d Decision) event() view.Event {
	text := d.Text
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return view.Event{Kind: d.Kind, Node: d.Node, Service: d.Service, Category: d.Category, Text: text, Before: d.Before, After: d.After}
}

// decide asks the deciders and journals what they say. One that fails keeps
// none of the others from deciding; only what ends the cycle is returned.
func (t *tenure) decide(ctx context.Context, in Input, r *Report) error {
	for _, d := range t.o.Deciders {
		decisions, err := d.Decide(ctx, in)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.problem("decider", d.Name(), err)
		}
		if err := t.carryOut(ctx, d.Name(), decisions, in.Now, r); err != nil {
			return err
		}
	}
	return nil
}

// carryOut journals decisions: those that were carried out already together,
// each of the others with what carries it out.
func (t *tenure) carryOut(ctx context.Context, decider string, decisions []Decision, now time.Time, r *Report) error {
	var done []view.Event
	for _, d := range decisions {
		if d.Do == nil {
			done = append(done, d.event())
			r.decided(decider, d, nil)
			continue
		}
		_, err := t.save(ctx, t.journal.View(), []view.Event{d.event()}, now, d.Do, r)
		switch {
		case err == nil:
			r.decided(decider, d, nil)
		case mendable(err):
			r.decided(decider, d, err)
		default:
			return fmt.Errorf("carry out a decision of %s: %w", decider, err)
		}
	}
	if len(done) == 0 {
		return nil
	}
	_, err := t.save(ctx, t.journal.View(), done, now, nil, r)
	return err
}

// mendable tells whether err, of saving, is of the decision alone: nothing was
// written then.
func mendable(err error) bool {
	return journal.Own(err) || errors.Is(err, kv.ErrBadKey) || errors.Is(err, consul.ErrTooLarge)
}
