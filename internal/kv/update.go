package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// Update reads the document, asks change for its successor and writes that,
// again and again until nobody else wrote in between. change must have no
// effects of its own; when it returns false or an error nothing is written. It is not
// asked about a document that cannot be read.
//
// Update returns the entry as it is now, or change's error, or what Get and
// CompareAndSwap return except ErrConflict. A write whose answer never came is
// looked for; consul.ErrOutcomeUnknown means that it could not be told.
func (d Doc[T]) Update(ctx context.Context, change func(old Entry[T]) (T, bool, error)) (Entry[T], error) {
	return d.insist(ctx, func() (Entry[T], error) {
		old, err := d.Get(ctx)
		if err != nil {
			return Entry[T]{}, err
		}
		v, write, err := change(old)
		if err != nil || !write {
			return old, err
		}
		return d.settled(ctx, old, v)
	})
}

// insist asks attempt, in the caller's turn, until there is no conflict.
func (d Doc[T]) insist(ctx context.Context, attempt func() (Entry[T], error)) (Entry[T], error) {
	rivals, leave, err := d.store.turns.take(ctx, d.store.Path(d.key))
	if err != nil {
		return Entry[T]{}, err
	}
	defer leave()
	for {
		begin := time.Now()
		e, err := attempt()
		if !errors.Is(err, ErrConflict) {
			if err == nil {
				rivals.won(time.Since(begin))
			}
			return e, err
		}
		if err := rivals.lost(ctx, time.Since(begin)); err != nil {
			return Entry[T]{}, err
		}
	}
}

// Change is Update of the document together with other keys, all or nothing:
// change adds what is to happen to them to t, which is empty each time it is
// asked. ErrConflict of any operation starts over. Unlike Update it returns
// consul.ErrOutcomeUnknown without looking for what became of the write.
func (d Doc[T]) Change(ctx context.Context, change func(old Entry[T], t *Txn) (T, bool, error)) (Entry[T], error) {
	return d.insist(ctx, func() (Entry[T], error) { return d.attemptTxn(ctx, change) })
}

// attemptTxn reads, changes and writes a document with other keys once.
func (d Doc[T]) attemptTxn(ctx context.Context, change func(old Entry[T], t *Txn) (T, bool, error)) (Entry[T], error) {
	old, err := d.Get(ctx)
	if err != nil {
		return Entry[T]{}, err
	}
	t := d.store.Txn()
	v, write, err := change(old, t)
	if err != nil || !write {
		return old, err
	}
	e, err := d.replace(v, old)
	if err != nil {
		return Entry[T]{}, err
	}
	t.CAS(d.key, e.raw, old.Index)
	r, err := t.Commit(ctx)
	if err != nil {
		return Entry[T]{}, err
	}
	e.Index = r.Index(d.key)
	return e, nil
}

// settled is CompareAndSwap that looks for what became of a write without an
// answer.
func (d Doc[T]) settled(ctx context.Context, old Entry[T], v T) (Entry[T], error) {
	e, err := d.replace(v, old)
	if err != nil {
		return Entry[T]{}, err
	}
	mark := newMark()
	e.Index, err = d.store.swap(ctx, d.key, e.raw, old.Index, mark)
	if errors.Is(err, consul.ErrOutcomeUnknown) {
		e.Index, err = d.store.settle(ctx, d.key, e.raw, old.Index, mark, err)
	}
	if err != nil {
		return Entry[T]{}, err
	}
	return e, nil
}

// backoff spreads the questions for what became of a write.
type backoff struct{ window time.Duration }

// wait returns after a pause, or with the context's error when it ends first.
// unit is the first window.
func (b *backoff) wait(ctx context.Context, unit time.Duration) error {
	b.window = min(max(2*b.window, unit), longestPause)
	return concurrency.Sleep(ctx, rand.N(b.window+1))
}
