package kv

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// UpdateTogether is Update for documents that are never modified in place:
// those who wait in this process to change the same document are served by one
// read and one compare-and-swap, each change asked about what the one before
// made of it. Errors are each caller's own. The entry that it returns is what
// was written for all of them.
func (d Doc[T]) UpdateTogether(ctx context.Context, change func(old Entry[T]) (T, bool, error)) (Entry[T], error) {
	j := &job[T]{doc: d, change: change, done: make(chan struct{})}
	turns, key := d.store.turns, d.store.Path(d.key)
	q := turns.join(key, j)
	defer turns.part(key, q)
	select {
	case <-q.turn:
		defer func() { q.turn <- struct{}{} }()
		if err := d.serve(ctx, q); err != nil {
			j.finish(Entry[T]{}, err)
		}
	case <-j.done:
	case <-ctx.Done():
		return j.abandon(context.Cause(ctx))
	}
	return j.entry, j.err
}

// serve carries out all jobs that wait for the document, in the caller's turn.
// It returns an error, and leaves the rest to the next in turn, when ctx ends.
func (d Doc[T]) serve(ctx context.Context, q *queue) error {
	jobs := d.waiting(q)
	defer func() { d.putBack(q, jobs) }()
	old, most := d.recall(q), len(jobs)
	for {
		jobs = slices.DeleteFunc(jobs, (*job[T]).finished)
		if len(jobs) == 0 {
			return nil
		}
		begin, batch := time.Now(), jobs[:min(most, len(jobs))]
		wrote, err := d.attempt(ctx, q, old, batch)
		old = Entry[T]{}
		switch {
		case wrote:
			q.rivals.won(time.Since(begin))
		case err == nil:
		case errors.Is(err, consul.ErrOutcomeUnknown):
			for _, j := range batch {
				if j.writes {
					j.finish(Entry[T]{}, err)
				}
			}
		case errors.Is(err, ErrConflict):
			forget(batch)
			if err := q.rivals.lost(ctx, time.Since(begin)); err != nil {
				return err
			}
		case ctx.Err() != nil:
			forget(batch)
			return err
		case len(batch) > 1: // it may be due to one of them
			forget(batch)
			most = 1
		default:
			batch[0].finish(Entry[T]{}, err)
		}
	}
}

// forget tells that what the jobs wanted was not written.
func forget[T any](jobs []*job[T]) {
	for _, j := range jobs {
		j.mu.Lock()
		j.writes = false
		j.mu.Unlock()
	}
}

// attempt reads, unless seen is there, asks all jobs, and writes once. What
// jobs make of seen counts only when the write proves that it was still so.
func (d Doc[T]) attempt(ctx context.Context, q *queue, seen Entry[T], jobs []*job[T]) (wrote bool, err error) {
	old, now, writes := seen, seen, 0
	if seen.Index != 0 {
		now, writes = askAll(jobs, old)
	}
	if writes == 0 {
		if old, err = d.Get(ctx); err != nil {
			return false, err
		}
		now, writes = askAll(jobs, old)
	}
	e := old
	if writes > 0 {
		if e, err = d.settled(ctx, old, now.Value); err != nil {
			return false, err
		}
		d.passed(q, e.Index)
	}
	if writes < len(jobs) {
		d.remember(q, e) // who was refused may ask again, knowing better
	}
	for _, j := range jobs {
		j.finish(e, j.refusal)
	}
	return writes > 0, nil
}

// askAll asks one job after the other, each about what the one before made of
// it, and returns what that came to and how many of them write.
func askAll[T any](jobs []*job[T], now Entry[T]) (_ Entry[T], writes int) {
	for _, j := range jobs {
		if now = j.ask(now); j.writes {
			writes++
		}
	}
	return now, writes
}

// waiting takes the document's jobs out of the queue.
func (d Doc[T]) waiting(q *queue) (jobs []*job[T]) {
	d.store.turns.mu.Lock()
	defer d.store.turns.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(w any) bool {
		j, ok := w.(*job[T])
		if ok = ok && j.doc == d; ok {
			jobs = append(jobs, j)
		}
		return ok
	})
	return jobs
}

// putBack leaves what was not finished to the next in turn.
func (d Doc[T]) putBack(q *queue, jobs []*job[T]) {
	d.store.turns.mu.Lock()
	defer d.store.turns.mu.Unlock()
	for _, j := range jobs {
		if !j.finished() {
			q.waiting = append(q.waiting, j)
		}
	}
}
