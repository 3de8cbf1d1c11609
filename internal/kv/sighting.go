package kv

import (
	"context"
	"time"
)

// seenFor is how long a document that was read is of use to a change.
const seenFor = time.Second

// sighting is a key's document as somebody who may change it has just read it.
// Nothing is believed of it: a compare-and-swap decides.
type sighting struct {
	entry any // an Entry of the document's type; nil: none
	at    time.Time
	past  uint64 // what has a lower index is of no use
}

// GetToChange is Get by a caller who may change the document next: an
// UpdateTogether that follows within a second is tried against what was read
// before it reads again.
func (d Doc[T]) GetToChange(ctx context.Context) (Entry[T], error) {
	e, err := d.Get(ctx)
	if err == nil {
		key := d.store.Path(d.key)
		q := d.store.turns.join(key, nil)
		d.remember(q, e)
		d.store.turns.part(key, q)
	}
	return e, err
}

// remember keeps e for the next change.
func (d Doc[T]) remember(q *queue, e Entry[T]) {
	d.store.turns.mu.Lock()
	defer d.store.turns.mu.Unlock()
	if e.Index >= q.past {
		q.entry, q.at = e, time.Now()
	}
}

// recall returns, once, what was remembered; the zero Entry is nothing.
func (d Doc[T]) recall(q *queue) Entry[T] {
	d.store.turns.mu.Lock()
	defer d.store.turns.mu.Unlock()
	e, ok := q.entry.(Entry[T])
	q.entry = nil
	if !ok || time.Since(q.at) > seenFor {
		return Entry[T]{}
	}
	return e
}

// passed tells that the document has come to index.
func (d Doc[T]) passed(q *queue, index uint64) {
	d.store.turns.mu.Lock()
	defer d.store.turns.mu.Unlock()
	q.entry, q.past = nil, max(q.past, index)
}
