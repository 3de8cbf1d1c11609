package kv

import "fmt"

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
