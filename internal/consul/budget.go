package consul

import (
	"context"
	"sync"
	"time"
)

// How long a blocking query may wait, and how long when more loops want to
// wait than the budget has places, so that all get their turn.
const (
	longWait  = time.Minute
	shortWait = time.Second
)

// budget bounds the number of queries that block at Consul at one time.
type budget struct {
	places chan struct{}

	mu      sync.Mutex
	loops   int
	waiting map[*context.CancelFunc]struct{} // of the long waits now under way
}

func newBudget(places int) *budget {
	return &budget{places: make(chan struct{}, places), waiting: map[*context.CancelFunc]struct{}{}}
}

// join counts one more loop until leave is called. When there are now more
// loops than places, the long waits under way are ended.
func (b *budget) join() (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loops++
	if b.loops == cap(b.places)+1 {
		for cancel := range b.waiting {
			(*cancel)()
		}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.loops--
	}
}

func (b *budget) watches() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loops
}

// acquire waits for a place. wait is how long the query may block; ctx ends
// when the place is wanted back, which preempted tells.
func (b *budget) acquire(parent context.Context) (ctx context.Context, wait time.Duration, release func(), err error) {
	select {
	case b.places <- struct{}{}:
	case <-parent.Done():
		return nil, 0, nil, parent.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loops > cap(b.places) {
		return parent, shortWait, func() { <-b.places }, nil
	}
	ctx, cancel := context.WithCancel(parent)
	b.waiting[&cancel] = struct{}{}
	return ctx, longWait - jitter(longWait/8), func() {
		cancel()
		b.mu.Lock()
		delete(b.waiting, &cancel)
		b.mu.Unlock()
		<-b.places
	}, nil
}
