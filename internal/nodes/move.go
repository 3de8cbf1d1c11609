package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Report records that node runs version, and reports whether that was news. It
// writes nothing when it is known. It returns ErrBadName, or what Move returns.
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

// Move replaces node's document by what change makes of it. change is asked again
// when another process wrote in between, so it must have no effects of its own;
// its second argument is the desired version, which may be empty. When it changes
// nothing, nothing is written. A document that is damaged counts as empty.
//
// The index keys that follow from the document move in the same transaction where
// the token may write them. Where it may not the orchestrator writes them.
//
// Move returns change's error, ErrBadName, ErrBadState, kv.ErrNewer,
// consul.ErrDenied, consul.ErrUnreachable, consul.ErrTooLarge or
// consul.ErrOutcomeUnknown.
func (l *Ledger) Move(ctx context.Context, node string, change func(d Document, desired string) (Document, error)) (changed bool, err error) {
	return l.move(ctx, node, change, nil)
}

// MoveFenced is Move of which the transaction also holds what fence adds. When
// that does not hold, nor the document stays, MoveFenced returns kv.ErrConflict
// at once, having written nothing.
func (l *Ledger) MoveFenced(
	ctx context.Context, node string, change func(d Document, desired string) (Document, error), fence func(*kv.Txn),
) (changed bool, err error) {
	return l.move(ctx, node, change, fence)
}

func (l *Ledger) move(
	ctx context.Context, node string, change func(d Document, desired string) (Document, error), fence func(*kv.Txn),
) (changed bool, err error) {
	if err := CheckNode(node); err != nil {
		return false, err
	}
	for {
		m, err := l.prepare(ctx, node, change)
		if err != nil || !m.news {
			return false, err
		}
		m.fence = fence
		if err = l.commit(ctx, m); errors.Is(err, consul.ErrOutcomeUnknown) {
			err = l.settle(ctx, m, err)
		}
		if !errors.Is(err, kv.ErrConflict) || fence != nil {
			return err == nil, err
		}
		if err := pause(ctx, conflictPause); err != nil {
			return false, err
		}
	}
}

// move is one step of a node.
type move struct {
	node string
	old  kv.Entry[Document]
	next Document
	news bool // next is another document

	fence func(*kv.Txn) // adds what else must hold; nil: nothing
}

// prepare reads node's document and the desired version, and asks change.
func (l *Ledger) prepare(ctx context.Context, node string, change func(Document, string) (Document, error)) (move, error) {
	doc := l.docs.At(node)
	r, err := l.store.Txn().Get(doc.Key()).Get(keyDesired).Commit(ctx)
	if err != nil {
		return move{}, err
	}
	old, err := doc.From(r)
	damaged := errors.Is(err, kv.ErrDamaged)
	if damaged {
		old.Value = Document{}
	} else if err != nil {
		return move{}, err
	}
	desired := ""
	if e, err := l.desired.From(r); err == nil { // states can do without
		desired = strings.TrimSpace(e.Value)
	}
	next, err := change(old.Value, desired)
	if err != nil {
		return move{}, err
	}
	if err := next.Check(); err != nil {
		return move{}, err
	}
	return move{node: node, old: old, next: next, news: damaged || !next.Equal(old.Value)}, nil
}

// commit carries out m, with its index keys where the token may write them.
func (l *Ledger) commit(ctx context.Context, m move) error {
	doc := l.docs.At(m.node)
	ops := projectionOps(m.node, projection(m.old.Value), projection(m.next))
	if len(ops) >= kv.MaxOps {
		return &consul.Error{Op: "move node", Name: m.node, Class: consul.ErrTooLarge, Err: fmt.Errorf("%d index keys change at once; the limit is %d", len(ops), kv.MaxOps-1)}
	}
	if !l.unprojected.Load() {
		t := l.fenced(m)
		doc.SwapIn(t, m.old, m.next)
		for _, o := range ops {
			o.add(t)
		}
		_, err := t.Commit(ctx)
		if !l.deniedProjection(err) {
			return err
		}
	}
	t := l.fenced(m)
	doc.SwapIn(t, m.old, m.next)
	_, err := t.Commit(ctx)
	if err == nil {
		l.unprojected.Store(true)
	}
	return err
}

// fenced returns a transaction that holds what m's fence adds.
func (l *Ledger) fenced(m move) *kv.Txn {
	t := l.store.Txn()
	if m.fence != nil {
		m.fence(t)
	}
	return t
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
		case e.Exists && e.Index == m.old.Index:
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
