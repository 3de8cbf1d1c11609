package kv

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/jorc/jorc/internal/consul"
)

// Doc is one key and the type of its value.
type Doc[T any] struct {
	store *Store
	key   string
	codec codec[T]
}

// Entry is what a key holds. Its index is not part of the value.
type Entry[T any] struct {
	Value T
	// Index is what a compare-and-swap compares: 0 when there is no such key.
	Index  uint64
	Exists bool
	// Created is the index of the write that created the key. Keys that were created
	// by different transactions have different ones, in the order of their creation.
	Created uint64
	// Session is the session that locks the key; empty: the key is not locked.
	Session string

	raw []byte
}

// NewDoc returns the document at key: a JSON object, written from the struct T
// with the member "format" in front. Members that T does not know survive a
// change. Formats above format are refused, so the number grows only with a
// change that an older jorc would misread.
func NewDoc[T any](s *Store, key string, format int) Doc[T] {
	return Doc[T]{store: s, key: key, codec: document[T]{format: format}}
}

// NewText returns the key whose value is the bare text.
func NewText(s *Store, key string) Doc[string] {
	return Doc[string]{store: s, key: key, codec: text{}}
}

// Key returns the document's key below the store's prefix.
func (d Doc[T]) Key() string { return d.key }

// In returns the same document in another store, such as that of a lease.
func (d Doc[T]) In(s *Store) Doc[T] {
	d.store = s
	return d
}

// Get reads the document; an absent document is not an error. It returns
// ErrDamaged, ErrNewer, ErrBadKey, consul.ErrDenied or consul.ErrUnreachable.
func (d Doc[T]) Get(ctx context.Context) (Entry[T], error) {
	p, _, err := d.store.get(ctx, d.key, d.store.query())
	if err != nil {
		return Entry[T]{}, err
	}
	return d.entry(p)
}

// Find returns the document as pairs, which Store.List read, hold it.
func (d Doc[T]) Find(pairs consul.KVPairs) (Entry[T], error) {
	path := d.store.Path(d.key)
	for _, p := range pairs {
		if p.Key == path {
			return d.entry(p)
		}
	}
	return Entry[T]{}, nil
}

// CompareAndSwap writes v if the document has not changed since old was read; the
// zero Entry is that of an absent document. It returns the new entry, or ErrConflict
// (nothing was written), ErrLockLost in the store of a lease,
// consul.ErrOutcomeUnknown, consul.ErrTooLarge, consul.ErrDenied or
// consul.ErrUnreachable.
func (d Doc[T]) CompareAndSwap(ctx context.Context, old Entry[T], v T) (Entry[T], error) {
	e, err := d.replace(v, old)
	if err != nil {
		return Entry[T]{}, err
	}
	e.Index, err = d.store.swap(ctx, d.key, e.raw, old.Index, newMark())
	if err != nil {
		return Entry[T]{}, err
	}
	return e, nil
}

// Parse decodes the document from its text, as NewText read it from the same
// key. It returns ErrDamaged or ErrNewer.
func (d Doc[T]) Parse(e Entry[string]) (Entry[T], error) {
	if !e.Exists {
		return Entry[T]{}, nil
	}
	return d.entry(&consul.KVPair{Key: d.store.Path(d.key), Value: e.raw, ModifyIndex: e.Index, Session: e.Session})
}

// Delete deletes the document if its index still is index. It returns
// ErrConflict also for an absent document, else what CompareAndSwap returns.
func (d Doc[T]) Delete(ctx context.Context, index uint64) error {
	_, err := d.store.Txn().CheckIndex(d.key, index).Delete(d.key).Commit(ctx)
	return err
}

// entry decodes what was read.
func (d Doc[T]) entry(p *consul.KVPair) (Entry[T], error) {
	if p == nil {
		return Entry[T]{}, nil
	}
	e := Entry[T]{Index: p.ModifyIndex, Created: p.CreateIndex, Exists: true, Session: p.Session, raw: p.Value}
	var err error
	if e.Value, err = d.codec.decode(p.Value); err != nil {
		return e, fmt.Errorf("read key %q: %w", d.store.Path(d.key), err)
	}
	return e, nil
}

// replace encodes v as the successor of old.
func (d Doc[T]) replace(v T, old Entry[T]) (Entry[T], error) {
	raw, err := d.codec.encode(v, old.raw)
	if err != nil {
		return Entry[T]{}, fmt.Errorf("encode key %q: %w", d.store.Path(d.key), err)
	}
	return Entry[T]{Value: v, Exists: true, raw: raw}, nil
}

// newMark returns a random number that identifies one write; it is stored in the
// key's flags. It fits into a number of JavaScript, so that Consul's UI keeps it.
func newMark() uint64 { return 1 + rand.Uint64N(1<<53-1) }

// SetIn adds a Set of the document to t.
func (d Doc[T]) SetIn(t *Txn, v T) {
	if e, err := d.successor(t, v, Entry[T]{}); err == nil {
		t.Set(d.key, e.raw)
	}
}

// SwapIn adds a compare-and-swap to t: from old, as it was read, to v.
func (d Doc[T]) SwapIn(t *Txn, old Entry[T], v T) {
	if e, err := d.successor(t, v, old); err == nil {
		t.CAS(d.key, e.raw, old.Index)
	}
}

// RewriteIn is SwapIn that changes the document's index also where v is what old holds, so
// that an earlier write from old can no longer be carried out.
func (d Doc[T]) RewriteIn(t *Txn, old Entry[T], v T) {
	if e, err := d.successor(t, v, old); err == nil {
		t.add(consul.KVCAS, d.key, consul.KVTxnOp{Value: e.raw, Flags: newMark(), Index: old.Index})
	}
}

// Swapped returns the document as SwapIn or RewriteIn of old and v in r's transaction left it. It
// returns ErrDamaged for a document that readers refuse, or consul.ErrDenied when the
// token may not read it.
func (d Doc[T]) Swapped(r *Result, old Entry[T], v T) (Entry[T], error) {
	e, err := d.replace(v, old)
	if err != nil {
		return Entry[T]{}, err
	}
	index := r.Index(d.key)
	if index == 0 {
		return Entry[T]{}, &consul.Error{Op: "read key", Name: d.store.Path(d.key), Class: consul.ErrDenied, Err: errFiltered}
	}
	return d.entry(&consul.KVPair{Value: e.raw, CreateIndex: cmp.Or(old.Created, index), ModifyIndex: index})
}

// From returns the document as a Get in r's transaction read it. It returns
// ErrDamaged, ErrNewer, or consul.ErrDenied when the token may not read it.
func (d Doc[T]) From(r *Result) (Entry[T], error) {
	p, err := r.pair(d.store, d.key)
	if err != nil {
		return Entry[T]{}, err
	}
	return d.entry(p)
}

// successor is replace for a transaction, which keeps the error.
func (d Doc[T]) successor(t *Txn, v T, old Entry[T]) (Entry[T], error) {
	if d.store.prefix != t.store.prefix {
		return Entry[T]{}, t.failed(fmt.Errorf("key %q in a transaction below %q: %w", d.store.Path(d.key), t.store.prefix, ErrBadKey))
	}
	e, err := d.replace(v, old)
	return e, t.failed(err)
}

// Update is what one iteration of a watch found.
type Update[T any] struct {
	Entry Entry[T]
	// Reset: Consul's indexes went backwards, so it lost or restored its state.
	Reset bool
	// Err: the document could not be read, and Entry.Value is zero. Watchers keep
	// the last good value.
	Err error
}

// Watch calls handle with the document and again after each change, until ctx
// ends; then it returns ctx's error. It returns ErrBadKey at once. handle also
// receives errors, which are retried until ctx ends, and the first answer after
// an error even if nothing changed. handle runs in the caller's goroutine.
func (d Doc[T]) Watch(ctx context.Context, handle func(Update[T])) error {
	if err := d.store.check(d.key); err != nil {
		return err
	}
	source := func(ctx context.Context, q consul.Query) (*consul.KVPair, consul.Meta, error) {
		return d.store.get(ctx, d.key, q)
	}
	var last Entry[T]
	quiet := false // handle has received last, and no error since
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
