package consul

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

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
