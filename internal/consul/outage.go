package consul

import (
	"context"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// Pauses between probes of a Consul that does not answer, and the time over
// which the waiting watches return once it does.
const (
	firstProbe   = 100 * time.Millisecond
	lastProbe    = 2 * time.Second
	returnWithin = 200 * time.Millisecond
	// A watch in turn probes only when none of the others has for this long.
	probeInTurn = 2 * lastProbe
)

// breaker is a circuit breaker for the watches: while Consul does not answer,
// one watch at a time sends a probe, and the others wait for its result. A probe that takes
// longer than lastProbe is waited for no longer: another watch sends the next one, because Consul
// may be slow to answer the first watch alone.
type breaker struct {
	mu      sync.Mutex
	tripped bool
	trips   uint64    // how often it tripped
	probing int       // how many probes are running
	began   time.Time // the last of them
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

// entry is how a watch may send its request.
type entry int

const (
	entered  entry = iota // Consul answers
	returned              // Consul answers again: the watch has waited for that
	asProbe               // Consul does not answer; the caller calls probed after its answer
)

// enter returns when the caller may send a request: at once while Consul
// answers, as a probe, or after another probe was answered. A watch in turn leaves
// the probes to the others. The error is the context's.
func (b *breaker) enter(ctx context.Context, inTurn bool) (entry, error) {
	how := entered
	for {
		b.mu.Lock()
		if !b.tripped {
			b.mu.Unlock()
			return how, nil
		}
		now, next := time.Now(), b.next
		switch {
		case inTurn && b.probing > 0:
			next = now.Add(probeInTurn)
		case inTurn:
			next = b.next.Add(probeInTurn)
		case b.probing > 0:
			next = b.began.Add(lastProbe)
		}
		if !now.Before(next) {
			b.probing, b.began = b.probing+1, now
			b.mu.Unlock()
			return asProbe, nil
		}
		changed, pause := b.changed, max(next.Sub(now), time.Millisecond)
		b.mu.Unlock()
		how = returned
		if err := concurrency.SleepUnless(ctx, changed, pause); err != nil {
			return how, err
		}
	}
}

// probed ends a probe. If Consul still does not answer, the next probe follows
// after a longer pause.
func (b *breaker) probed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing--
	if b.tripped {
		b.next = time.Now().Add(b.backoff.Next())
	}
	b.broadcast()
}

func (b *breaker) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}
