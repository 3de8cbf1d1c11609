package agent

import (
	"context"
	"reflect"
	"sync"
)

// latest is a value that some set and others watch. The zero latest has none yet.
type latest[T any] struct {
	mu      sync.Mutex
	value   T
	known   bool
	changed chan struct{} // closed at the next change; nil: nobody waits
}

// get returns the value; known is false before the first was set.
func (l *latest[T]) get() (value T, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.known
}

// set makes v the value, and tells those who watch if it is another one.
func (l *latest[T]) set(v T) {
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

// watch calls handle with the value, once there is one, and whenever it changes,
// until ctx ends; then it returns ctx's error. Of values in quick succession
// handle sees the last.
func (l *latest[T]) watch(ctx context.Context, handle func(T)) error {
	for {
		l.mu.Lock()
		v, known := l.value, l.known
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		if known {
			handle(v)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
