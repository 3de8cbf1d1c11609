package consul

import (
	"context"
	"math/rand/v2"
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

// Pauses between probes of a Consul that does not answer, and the spread of
// those who come back once it does.
const (
	firstProbe   = 100 * time.Millisecond
	lastProbe    = 2 * time.Second
	returnWithin = 200 * time.Millisecond
)

// gate spares a Consul that does not answer: while it is shut one watcher at a
// time goes through as the probe, the others wait for what it finds.
type gate struct {
	mu      sync.Mutex
	closed  bool
	times   uint64 // that it was shut
	probing bool
	pause   time.Duration
	next    time.Time     // when the next probe may go
	changed chan struct{} // closed when any of the above changes
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

// shut says that Consul did not answer.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	g.times++
	g.pause = firstProbe
	g.next = time.Now().Add(jitter(g.pause))
	g.broadcast()
}

// shutTimes is how often the gate was shut up to now.
func (g *gate) shutTimes() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.times
}

// open says that it did.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		return
	}
	g.closed = false
	g.broadcast()
}

// enter returns when the caller may ask Consul: at once while it answers, as
// its probe, or when another probe was answered. The caller calls leave when
// it has its answer. The error is the context's.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	waited := false
	for {
		g.mu.Lock()
		if !g.closed {
			g.mu.Unlock()
			if waited {
				err = sleep(ctx, rand.N(returnWithin))
			}
			return func() {}, err
		}
		now := time.Now()
		if !g.probing && !now.Before(g.next) {
			g.probing = true
			g.mu.Unlock()
			return g.probed, nil
		}
		changed, pause := g.changed, max(g.next.Sub(now), time.Millisecond)
		if g.probing {
			pause = time.Hour
		}
		g.mu.Unlock()
		waited = true
		if err := waitFor(ctx, changed, pause); err != nil {
			return nil, err
		}
	}
}

// probed ends a probe; if Consul still does not answer the next one goes later.
func (g *gate) probed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = false
	if g.closed {
		g.pause = min(g.pause*2, lastProbe)
		g.next = time.Now().Add(jitter(g.pause))
	}
	g.broadcast()
}

func (g *gate) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// jitter is between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// sleep returns nil after d, or the context's error when it ends first.
func sleep(ctx context.Context, d time.Duration) error { return waitFor(ctx, nil, d) }

// waitFor returns nil when ch is closed or after d.
func waitFor(ctx context.Context, ch <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ch:
	case <-t.C:
	}
	return nil
}
