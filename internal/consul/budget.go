package consul

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// How long a blocking query may wait: as long as its loop has run so far. Consul
// continues an abandoned query, and counts its connection, until its wait ends,
// and young loops are the ones most often abandoned. When more loops want to
// wait than the budget has places, all waits are short, so that every loop gets
// a place in turn.
const (
	firstWait = 2 * time.Second
	longWait  = 2 * time.Minute
	shortWait = time.Second
)

// waitAt returns the wait of a loop of that age.
func waitAt(age time.Duration) time.Duration { return min(max(age, firstWait), longWait) }

// budget limits the number of queries that block at Consul concurrently.
type budget struct {
	places chan struct{}

	mu      sync.Mutex
	loops   int
	waiting map[*context.CancelFunc]struct{} // the long waits in progress
}

func newBudget(places int) *budget {
	return &budget{places: make(chan struct{}, places), waiting: map[*context.CancelFunc]struct{}{}}
}

// join counts one more loop until leave is called. When the loops become more
// than the places, it ends the long waits in progress.
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

// interrupt ends the long waits in progress.
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

// acquire waits for a place for a query that wants to block for up to want. wait
// is how long it may block; ctx ends when another loop needs the place.
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

// jitter returns a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
