package kv

import (
	"fmt"
	"sync"

	"github.com/jorc/jorc/internal/consul"
)

// job is one caller's part of an update.
type job[T any] struct {
	doc    Doc[T]
	change func(old Entry[T]) (T, bool, error)
	done   chan struct{} // closed when entry and err are there
	entry  Entry[T]
	err    error

	mu      sync.Mutex
	over    bool // finished, or its caller waits no more
	writes  bool // in the attempt that is under way
	refusal error
}

// ask returns what the job makes of now.
func (j *job[T]) ask(now Entry[T]) Entry[T] {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes, j.refusal = false, nil
	if j.over {
		return now
	}
	v, write, err := j.change(now)
	if j.refusal = err; err == nil && write {
		j.writes = true
		now.Value, now.Exists = v, true
	}
	return now
}

func (j *job[T]) finished() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.over
}

func (j *job[T]) finish(e Entry[T], err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		j.over, j.entry, j.err = true, e, err
		close(j.done)
	}
}

// abandon ends the job because its caller's context ended, with cause. Whoever
// has the turn may be writing it at this moment.
func (j *job[T]) abandon(cause error) (Entry[T], error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return j.entry, j.err
	}
	j.over = true
	if j.writes {
		cause = fmt.Errorf("write key %q: %w: %w", j.doc.store.Path(j.doc.key), consul.ErrOutcomeUnknown, cause)
	}
	return Entry[T]{}, cause
}
