package consul

import (
	"context"
	"sync"
	"time"
)

// How long a blocking query may wait: as long as its loop has lived already,
// since Consul goes on with a query, and counts its connection, for as long
// after it was abandoned, and young loops are those that are. When more loops
// want to wait than the budget has places, all waits are short, so that each
// loop gets its turn.
const (
	firstWait = 2 * time.Second
	longWait  = time.Minute
	shortWait = time.Second
)

// waitAt is the wait of a loop at an age.
func waitAt(age time.Duration) time.Duration { return min(max(age, firstWait), longWait) }

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
		b.cancel()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.loops--
	}
}

// interrupt ends the long waits under way.
func (b *budget) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel()
}

func (b *budget) cancel() {
	for cancel := range b.waiting {
		(*cancel)()
	}
}

func (b *budget) watches() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loops
}

// acquire waits for a place for a query that would like to block for up to
// want. wait is how long it may; ctx ends when the place is wanted back.
func (b *budget) acquire(parent context.Context, want time.Duration) (ctx context.Context, wait time.Duration, release func(), err error) {
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
	return ctx, want - jitter(want/8), func() {
		cancel()
		b.mu.Lock()
		delete(b.waiting, &cancel)
		b.mu.Unlock()
		<-b.places
	}, nil
}
