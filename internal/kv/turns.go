package kv

import (
	"context"
	"sync"
)

// turns lets one at a time change a key in this process, so that its own
// goroutines never cost each other a failed compare-and-swap.
type turns struct {
	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	turn  chan struct{} // holds one value: the right to go
	users int           // the one whose turn it is included
}

func newTurns() *turns { return &turns{queues: map[string]*queue{}} }

// take waits for the caller's turn with key; leave gives it to the next. The
// error is the context's.
func (t *turns) take(ctx context.Context, key string) (leave func(), err error) {
	q := t.join(key)
	select {
	case <-q.turn:
		return func() { q.turn <- struct{}{}; t.part(key, q) }, nil
	case <-ctx.Done():
		t.part(key, q)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(key string) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[key]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		q.turn <- struct{}{}
		t.queues[key] = q
	}
	q.users++
	return q
}

func (t *turns) part(key string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.users--
	if q.users == 0 {
		delete(t.queues, key)
	}
}
