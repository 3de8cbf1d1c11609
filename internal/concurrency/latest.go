package concurrency

import (
	"context"
	"reflect"
	"sync"
)

// Latest is a value that some goroutines set and others watch. The zero Latest
// has no value yet. It is safe for concurrent use.
type Latest[T any] struct {
	mu      sync.Mutex
	value   T
	known   bool
	changed chan struct{} // closed at the next change; nil while no watcher waits
}

// Get returns the value; known is false before the first Set.
func (l *Latest[T]) Get() (value T, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.known
}

// Set makes v the value and wakes the watchers. A v that equals the present
// value (reflect.DeepEqual) changes nothing.
func (l *Latest[T]) Set(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known && reflect.DeepEqual(l.value, v) {
		return
	}
	l.value, l.known = v, true
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Watch calls handle with the value as soon as there is one and after each
// change, until ctx ends; then it returns ctx's error. handle may miss values
// that follow each other quickly, but never the last one.
func (l *Latest[T]) Watch(ctx context.Context, handle func(T)) error {
	for {
		value, known, changed := l.next()
		if known {
			handle(value)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Wait returns the first value for which ok holds, or ctx's error when ctx ends
// before.
func (l *Latest[T]) Wait(ctx context.Context, ok func(T) bool) (T, error) {
	for {
		value, known, changed := l.next()
		if known && ok(value) {
			return value, nil
		}
		select {
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		case <-changed:
		}
	}
}

// next returns the value and a channel that is closed when it changes.
func (l *Latest[T]) next() (value T, known bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.value, l.known, l.changed
}
