package kv

import (
	"context"
	"fmt"

	"github.com/jorc/jorc/internal/consul"
)

// NonAtomicBatch is a list of groups of operations. Each group is carried out
// all or not at all; the batch as a whole is not: when one transaction fails,
// those in front of it stay. Groups keep their order, and as many as fit go
// into one transaction.
type NonAtomicBatch struct {
	store  *Store
	groups []*Txn
}

// NonAtomicBatch returns an empty batch.
func (s *Store) NonAtomicBatch() *NonAtomicBatch { return &NonAtomicBatch{store: s} }

// Add adds the operations of t as one group.
func (b *NonAtomicBatch) Add(t *Txn) { b.groups = append(b.groups, t) }

// BatchError says how far a batch came.
type BatchError struct {
	Written int // groups that were carried out: the first of the batch
	Failed  int // groups behind them, in the transaction that failed
	Groups  int // all of them
	Err     error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("batch of %d groups: %d written, then %d failed together: %v", e.Groups, e.Written, e.Failed, e.Err)
}

// Unwrap returns why the transaction failed.
func (e *BatchError) Unwrap() error { return e.Err }

// Commit carries out the groups in order and stops at the first transaction
// that fails, with a *BatchError around what Txn.Commit returns; the groups of
// that transaction share its outcome. consul.ErrTooLarge for a single group is
// returned before anything is sent.
func (b *NonAtomicBatch) Commit(ctx context.Context) error {
	parts, err := b.split()
	if err != nil {
		return err
	}
	written := 0
	for _, p := range parts {
		if _, err := p.txn.Commit(ctx); err != nil {
			return &BatchError{Written: written, Failed: p.groups, Groups: len(b.groups), Err: err}
		}
		written += p.groups
	}
	return nil
}

// part is one transaction of a batch.
type part struct {
	txn    *Txn
	groups int
}

// split packs the groups into transactions within both limits.
func (b *NonAtomicBatch) split() ([]part, error) {
	var parts []part
	for i, g := range b.groups {
		if g.store.prefix != b.store.prefix || g.store.held != b.store.held {
			return nil, fmt.Errorf("group %d of the batch is of another store: %w", i, consul.ErrRefused)
		}
		if n := len(parts); n > 0 && fits(parts[n-1].txn, g) {
			parts[n-1].txn.merge(g)
			parts[n-1].groups++
			continue
		}
		next := b.store.Txn()
		next.merge(g)
		if err := next.valid(); err != nil {
			return nil, fmt.Errorf("group %d of the batch: %w", i, err)
		}
		parts = append(parts, part{txn: next, groups: 1})
	}
	return parts, nil
}

// fits tells whether t still respects both limits with g behind it.
func fits(t, g *Txn) bool {
	if g.err != nil {
		return false // so that split tells
	}
	own := len(g.ops) - g.fenced
	return len(t.ops)+own <= MaxOps && t.Size()+g.ownSize()+own <= MaxBody
}
