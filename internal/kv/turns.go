package kv

import (
	"context"
	"sync"
	"time"
)

// turns lets one at a time change a key in this process, so that its own
// goroutines never cost each other a failed compare-and-swap. It also keeps
// what they learned of the key's other writers.
type turns struct {
	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	turn  chan struct{} // holds one value: the right to go
	users int           // the one whose turn it is included

	rivals  rivals    // belongs to whoever has the turn
	idle    time.Time // since when there are no users
	waiting []any     // the jobs of those who share a turn
	sighting
}

// Keys of which more is known than that they exist are kept so long after
// their last use; where there are many, for the next in need of the place.
const (
	learnedFor = 10 * time.Second
	manyQueues = 64
)

func newTurns() *turns { return &turns{queues: map[string]*queue{}} }

// take waits for the caller's turn with key, in which what is known of the
// key's other writers is its own; leave gives it to the next. The error is the
// context's.
func (t *turns) take(ctx context.Context, key string) (r *rivals, leave func(), err error) {
	q := t.join(key, nil)
	select {
	case <-q.turn:
		return &q.rivals, func() { q.turn <- struct{}{}; t.part(key, q) }, nil
	case <-ctx.Done():
		t.part(key, q)
		return nil, nil, context.Cause(ctx)
	}
}

// join makes the caller a user of key's queue; job, when there is one, waits in
// it for whoever has the turn next.
func (t *turns) join(key string, job any) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[key]
	if q == nil {
		t.sweep()
		q = &queue{turn: make(chan struct{}, 1)}
		q.turn <- struct{}{}
		t.queues[key] = q
	}
	q.users++
	if job != nil {
		q.waiting = append(q.waiting, job)
	}
	return q
}

func (t *turns) part(key string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.users--
	switch {
	case q.users > 0:
	case q.rivals.none() && q.entry == nil:
		delete(t.queues, key)
	default:
		q.idle = time.Now()
	}
}

// sweep forgets keys that nobody has changed lately.
func (t *turns) sweep() {
	if len(t.queues) < manyQueues {
		return
	}
	for key, q := range t.queues {
		if q.users == 0 && time.Since(q.idle) > learnedFor {
			delete(t.queues, key)
		}
	}
}
