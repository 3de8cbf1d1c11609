package kv

import (
	"context"

	"github.com/jorc/jorc/internal/consul"
)

// Update is one turn of a watch.
type Update[T any] struct {
	Entry Entry[T]
	// Reset: Consul's indexes went backwards, so it lost or restored its state.
	Reset bool
	// Err: the document could not be read, and Entry.Value is zero. Whoever
	// watches keeps the last good one.
	Err error
}

// Watch calls handle with the document as it is, and again whenever it
// changed, until ctx ends; then it returns ctx's error, or ErrBadKey at once.
// Failures are handed to handle too and retried without end; the first answer
// after one is handed on even when it is nothing new. handle runs in the
// caller's goroutine.
func (d Doc[T]) Watch(ctx context.Context, handle func(Update[T])) error {
	if err := d.store.check(d.key); err != nil {
		return err
	}
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return d.store.get(ctx, d.key, q)
	}
	var last Entry[T]
	quiet := false // last was handed on, and nothing since
	watch := func(handle func(consul.Update[*consul.KVPair])) error {
		if shared := d.store.sharedFor(d.key); shared != nil {
			return shared.watchKey(ctx, d.store.Path(d.key), handle)
		}
		return consul.Watch(ctx, d.store.client, d.store.query(), source, handle)
	}
	return watch(func(u consul.Update[*consul.KVPair]) {
		if u.Err != nil {
			quiet = false
			handle(Update[T]{Err: u.Err})
			return
		}
		e, err := d.entry(u.Value)
		if quiet && !u.Reset && e.Exists == last.Exists && e.Index == last.Index {
			return // another key below the same node of Consul's index changed
		}
		last, quiet = e, true
		handle(Update[T]{Entry: e, Reset: u.Reset, Err: err})
	})
}
