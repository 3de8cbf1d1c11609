package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Report records that node runs version, and tells whether that was news. It
// writes nothing when it is known, and puts the node's index keys right where
// somebody else wrote them. It returns ErrBadName, or what Move returns.
func (l *Ledger) Report(ctx context.Context, node, version string) (changed bool, err error) {
	if err := CheckVersion(version); err != nil {
		return false, err
	}
	return l.Move(ctx, node, func(d Document, _ string) (Document, error) {
		return d.At(version, l.now()), nil
	})
}

// SetState records the state of node in a category, and tells whether that was
// news; s.Since is not used. Without s.Version the state is about the desired
// version, or about the one that the node runs. A node that is provisioned
// stays so: ErrProvisioned. It returns ErrBadName, ErrBadState, or what Move
// returns.
func (l *Ledger) SetState(ctx context.Context, node, category string, s State) (changed bool, err error) {
	if err := CheckState(category, s.State); err != nil {
		return false, err
	}
	return l.Move(ctx, node, func(d Document, desired string) (Document, error) {
		if category == Provisioned && d.States[category].State == Success {
			if s.State != Success {
				return d, fmt.Errorf("node %q: %w since %s: only 'jorc status decommission' ends that", node, ErrProvisioned, d.States[category].Since.Format(time.RFC3339))
			}
			return d, nil
		}
		s := s
		if s.Version == "" && CheckVersion(desired) == nil {
			s.Version = desired
		}
		if s.Version == "" {
			s.Version = d.Version
		}
		return d.With(category, s, l.now()), nil
	})
}

// Move replaces node's document by what change makes of it and moves the index
// keys that follow from it, in one transaction: whoever looks sees the node
// at one version, and in one state per category. change is asked again when
// somebody else wrote in between, so it must have no effects of its own; it is
// told the desired version, which may be empty. When it changes nothing, and
// the index keys are right, nothing is written. Keys that name the node where
// it is not are deleted. What a
// document does not say is taken from index keys, see known.
//
// Move returns change's error, ErrBadName, ErrBadState, kv.ErrNewer,
// consul.ErrDenied, consul.ErrUnreachable, consul.ErrTooLarge or
// consul.ErrOutcomeUnknown.
func (l *Ledger) Move(ctx context.Context, node string, change func(d Document, desired string) (Document, error)) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	for {
		m, err := l.prepare(ctx, node, change)
		if err != nil || m.nothing() {
			return false, err
		}
		if err = l.commit(ctx, m); errors.Is(err, consul.ErrOutcomeUnknown) {
			err = l.settle(ctx, m, err)
		}
		if err == nil {
			l.wrote(m.next)
		}
		if !errors.Is(err, kv.ErrConflict) {
			return err == nil && m.news, err
		}
		if err := pause(ctx, conflictPause); err != nil {
			return false, err
		}
	}
}

// move is one step of a node: what was, what is to be, and the difference.
type move struct {
	node string
	old  traces
	next Document
	news bool // next is another document
	ops  []op // on index keys, those that belong to the news first
}

func (m move) nothing() bool { return !m.news && len(m.ops) == 0 }

// prepare reads the traces of node and plans its move.
func (l *Ledger) prepare(ctx context.Context, node string, change func(Document, string) (Document, error)) (move, error) {
	t, err := l.trace(ctx, node)
	if err != nil {
		return move{}, err
	}
	next, err := change(t.known(), t.desired)
	if err != nil {
		return move{}, err
	}
	if err := next.Check(); err != nil {
		return move{}, err
	}
	m := move{node: node, old: t, next: next, news: t.damaged || !next.Equal(t.doc.Value)}
	var moved int
	m.ops, moved = t.plan(node, next)
	if moved >= kv.MaxOps {
		return move{}, &consul.Error{Op: "move node", Name: node, Class: consul.ErrTooLarge, Err: fmt.Errorf("%d index keys change at once; the limit is %d", moved, kv.MaxOps-1)}
	}
	return m, nil
}

// commit carries out m. What does not fit beside the document are keys that
// somebody else left behind: they are deleted afterwards, as long as the
// document stays.
func (l *Ledger) commit(ctx context.Context, m move) error {
	doc := l.docs.At(m.node)
	index := m.old.doc.Index
	t := l.store.Txn()
	if m.news {
		doc.SwapIn(t, m.old.doc, m.next)
	} else {
		t.CheckIndex(doc.Key(), index)
	}
	ops := m.ops
	for {
		n := min(len(ops), kv.MaxOps-t.Len())
		for _, o := range ops[:n] {
			o.add(t)
		}
		ops = ops[n:]
		r, err := t.Commit(ctx)
		if err != nil || len(ops) == 0 {
			return err
		}
		if m.news && index == m.old.doc.Index {
			index = r.Index(doc.Key())
		}
		t = l.store.Txn().CheckIndex(doc.Key(), index)
	}
}

const (
	conflictPause = 20 * time.Millisecond
	settlePause   = 100 * time.Millisecond
	settleWithin  = 15 * time.Second
)

// settle finds out what became of a move whose answer never came: unknown is
// the error it ended with. While the document is as it was the move was not
// carried out so far, and ErrConflict makes it be tried again: of all that ask
// for one index at most one is ever carried out. A document that was and is
// absent may have been created and removed since.
func (l *Ledger) settle(ctx context.Context, m move, unknown error) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	doc := l.docs.In(l.store.Consistent()).At(m.node)
	for {
		e, err := doc.Get(ctx)
		switch {
		case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
			if pause(ctx, settlePause) != nil {
				return unknown
			}
		case e.Exists && e.Index == m.old.doc.Index:
			return fmt.Errorf("%w: %w", kv.ErrConflict, unknown)
		case err == nil && e.Exists && e.Value.Equal(m.next):
			return nil
		default:
			return unknown
		}
	}
}

// pause returns after up to d, or with the context's error when it ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(rand.N(d) + 1)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
