package kv

import (
	"context"
	"errors"
	"time"

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
	leave, err := d.store.turns.take(ctx, d.store.Path(d.key))
	if err != nil {
		return Entry[T]{}, err
	}
	defer leave()
	var b backoff
	for {
		begin := time.Now()
		e, err := d.attempt(ctx, change)
		if !errors.Is(err, ErrConflict) {
			return e, err
		}
		if err := b.wait(ctx, time.Since(begin)); err != nil {
			return Entry[T]{}, err
		}
	}
}

// attempt reads, changes and writes once.
func (d Doc[T]) attempt(ctx context.Context, change func(old Entry[T]) (T, bool, error)) (Entry[T], error) {
	old, err := d.Get(ctx)
	if err != nil {
		return Entry[T]{}, err
	}
	v, write, err := change(old)
	if err != nil || !write {
		return old, err
	}
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
