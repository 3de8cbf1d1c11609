package consul

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// How long a blocking query may wait: as long as its loop has run so far. Consul
// continues an abandoned query, and counts its connection, until its wait ends,
// and young loops are the ones most often abandoned. When more loops want to
// wait than the budget has places, all waits are short, so that every loop gets
// a place in turn.
const (
	firstWait = 2 * time.Second
	longWait  = time.Minute
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

// Pauses between probes of a Consul that does not answer, and the time over
// which the waiting watches return once it does.
const (
	firstProbe   = 100 * time.Millisecond
	lastProbe    = 2 * time.Second
	returnWithin = 200 * time.Millisecond
)

// breaker is a circuit breaker for the watches: while Consul does not answer,
// one watch at a time sends a probe, and the others wait for its result.
type breaker struct {
	mu      sync.Mutex
	tripped bool
	trips   uint64 // how often it tripped
	probing bool
	backoff *concurrency.Backoff
	next    time.Time     // when the next probe may be sent
	changed chan struct{} // closed when any of the above changes
}

func newBreaker() *breaker {
	return &breaker{backoff: concurrency.NewBackoff(firstProbe, lastProbe), changed: make(chan struct{})}
}

// trip records that Consul does not answer.
func (b *breaker) trip() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tripped {
		return
	}
	b.tripped = true
	b.trips++
	b.backoff.Reset()
	b.next = time.Now().Add(b.backoff.Next())
	b.broadcast()
}

// tripCount returns how often the breaker tripped.
func (b *breaker) tripCount() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trips
}

// reset records that Consul answers.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.tripped {
		return
	}
	b.tripped = false
	b.broadcast()
}

// enter returns when the caller may send a request: at once while Consul
// answers, as a probe, or after another probe was answered. The caller calls
// leave after its answer. The error is the context's.
func (b *breaker) enter(ctx context.Context) (leave func(), err error) {
	waited := false
	for {
		b.mu.Lock()
		if !b.tripped {
			b.mu.Unlock()
			if waited {
				err = concurrency.Sleep(ctx, rand.N(returnWithin))
			}
			return func() {}, err
		}
		now := time.Now()
		if !b.probing && !now.Before(b.next) {
			b.probing = true
			b.mu.Unlock()
			return b.probed, nil
		}
		changed, pause := b.changed, max(b.next.Sub(now), time.Millisecond)
		if b.probing {
			pause = time.Hour
		}
		b.mu.Unlock()
		waited = true
		if err := concurrency.SleepUnless(ctx, changed, pause); err != nil {
			return nil, err
		}
	}
}

// probed ends a probe. If Consul still does not answer, the next probe follows
// after a longer pause.
func (b *breaker) probed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	if b.tripped {
		b.next = time.Now().Add(b.backoff.Next())
	}
	b.broadcast()
}

func (b *breaker) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// jitter returns a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
