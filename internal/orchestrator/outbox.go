package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
)

// eventOf is the event of a decision.
func eventOf(d event.Decision, at time.Time) Event {
	what := d.Text
	if d.Reason != "" {
		what += ": " + d.Reason
	}
	return Event{
		Time: at, Kind: d.Kind, Change: d.Change, Node: d.Node, Service: d.Service, Category: d.Category, Text: what, Before: d.Before, After: d.After, AuthorUnknown: d.AuthorUnknown,
	}
}

// decisionEvents returns the events of decisions; at is their time, zero: the one of the journal's entry.
func decisionEvents(all []event.Decision, at time.Time) []Event {
	events := make([]Event, len(all))
	for i, d := range all {
		events[i] = eventOf(d, at)
	}
	return events
}

// bounded is d with texts that a transaction has room for.
func bounded(d event.Decision) event.Decision {
	for _, s := range []*string{&d.Kind, &d.Change, &d.Node, &d.Service, &d.Category, &d.Text, &d.Reason, &d.Before, &d.After} {
		*s = text.Truncate(*s, maxText)
	}
	return d
}

// outbox has decisions that are carried out and not journalled yet. Each stands at a key of its own from the
// transaction that carries it out until the one that journals it: it becomes an event exactly once,
// whenever an orchestrator ends, and what decides does not wait for the journal.
type outbox struct {
	tree  kv.Tree[delivery]
	store *kv.Store // fenced
	term  string    // what the names of this holder of the lock begin with

	mu      concurrency.Exclusive // also held while the keys are read or written
	seq     uint64
	waiting []waitingDecisions // in order
	known   bool               // waiting is what stands at the keys
	// doubtful are names of transactions of which it is not known whether they were carried out.
	doubtful []string
}

// delivery is the document of decisions of one transaction.
type delivery struct {
	By        string           `json:"by"` // the decider
	At        time.Time        `json:"at"`
	Decisions []event.Decision `json:"decisions"`
}

type waitingDecisions struct {
	delivery

	key   string
	index uint64
}

// mostMoved is how many keys of decisions one transaction of the journal empties.
const mostMoved = 32

// newOutbox returns the outbox in the store of a lock; epoch is that of the lock.
func newOutbox(s *kv.Store, epoch uint64) *outbox {
	return &outbox{tree: kv.NewTree[delivery](s, cluster.PrefixDecided, 1), store: s, term: fmt.Sprintf("%016d.", epoch), mu: concurrency.NewExclusive()}
}

// commit carries out do and keeps the decisions for the journal, both or neither. It returns what kv.Txn.Commit
// returns.
func (o *outbox) commit(ctx context.Context, by string, decisions []event.Decision, do func(*kv.Txn)) (*kv.Result, error) {
	if len(decisions) == 0 {
		t := o.store.Txn()
		do(t)
		return t.Commit(ctx)
	}
	if err := o.mu.LockContext(ctx); err != nil {
		return nil, err
	}
	defer o.mu.Unlock()
	o.seq++
	name := fmt.Sprintf("%s%08d", o.term, o.seq)
	doc := o.tree.At(name)
	w := waitingDecisions{key: doc.Key(), delivery: delivery{By: by, At: time.Now().UTC().Truncate(time.Millisecond)}}
	for _, d := range decisions {
		w.Decisions = append(w.Decisions, bounded(d))
	}
	t := o.store.Txn()
	do(t)
	doc.SwapIn(t, kv.Entry[delivery]{}, w.delivery)
	done, err := t.Commit(ctx)
	if errors.Is(err, consul.ErrOutcomeUnknown) {
		o.doubtful, o.known = append(o.doubtful, name), false
	}
	if err != nil {
		return nil, err
	}
	w.index = done.Index(w.key)
	o.waiting = append(o.waiting, w)
	return done, nil
}

// load reads what stands at the keys if that is not known, and returns what of it cannot be read. That is deleted.
func (o *outbox) load(ctx context.Context) (problems []error, err error) {
	if err := o.mu.LockContext(ctx); err != nil {
		return nil, err
	}
	defer o.mu.Unlock()
	if o.known {
		return nil, nil
	}
	if err := o.settle(ctx); err != nil {
		return nil, err
	}
	leaves, err := o.tree.In(o.store.Consistent()).List(ctx)
	if err != nil {
		return nil, err
	}
	o.waiting = nil
	left := o.store.NonAtomicBatch()
	for _, name := range slices.Sorted(maps.Keys(leaves)) {
		leaf, key := leaves[name], o.tree.At(name).Key()
		switch {
		case errors.Is(leaf.Err, kv.ErrNewer):
			return nil, leaf.Err
		case leaf.Err != nil:
			problems = append(problems, leaf.Err)
			left.Add(o.store.Txn().DeleteCAS(key, leaf.Index))
		case len(leaf.Value.Decisions) == 0 && strings.HasPrefix(name, o.term): // see settle
		case len(leaf.Value.Decisions) == 0:
			left.Add(o.store.Txn().DeleteCAS(key, leaf.Index))
		default:
			o.waiting = append(o.waiting, waitingDecisions{leaf.Value, key, leaf.Index})
		}
	}
	if err := left.Commit(ctx); err != nil {
		return nil, err
	}
	o.known = true
	return problems, nil
}

// settle takes the names of doubtful transactions: one that was not carried out cannot be any longer then, as
// it would take its name, too.
func (o *outbox) settle(ctx context.Context) error {
	for _, name := range o.doubtful {
		t := o.store.Txn()
		o.tree.At(name).SwapIn(t, kv.Entry[delivery]{}, delivery{})
		if _, err := t.Commit(ctx); err != nil && !overtaken(err) {
			return err
		}
	}
	o.doubtful = nil
	return nil
}

// next returns the oldest that wait, as many as the journal takes at once, and whether there are more.
func (o *outbox) next() (all []waitingDecisions, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.waiting), mostMoved)
	return slices.Clone(o.waiting[:n]), n < len(o.waiting)
}

// moving adds to the transaction of the journal that all wait no longer; nil: nothing waits.
func moving(all []waitingDecisions) func(*kv.Txn) {
	if len(all) == 0 {
		return nil
	}
	return func(t *kv.Txn) {
		for _, w := range all {
			t.DeleteCAS(w.key, w.index)
		}
	}
}

// moved forgets decisions that are journalled.
func (o *outbox) moved(all []waitingDecisions) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = slices.DeleteFunc(o.waiting, func(w waitingDecisions) bool {
		return slices.ContainsFunc(all, func(m waitingDecisions) bool { return m.key == w.key })
	})
}

// forget has the keys read again: it is not known what stands there.
func (o *outbox) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = false
}

// saveDecided makes v the view, and journals events together with what was decided: the oldest that
// waits.
func (t *term) saveDecided(ctx context.Context, v View, events []Event, decided []waitingDecisions, now time.Time, r *Report) error {
	for _, w := range decided {
		events = append(events, decisionEvents(w.Decisions, w.At)...)
	}
	if err := t.save(ctx, v, events, now, moving(decided), r); err != nil {
		t.outbox.forget()
		return err
	}
	t.outbox.moved(decided)
	for _, w := range decided {
		r.decided(w.By, w.Decisions)
	}
	return nil
}
