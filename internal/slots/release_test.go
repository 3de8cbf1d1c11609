package slots_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/slots"
)

// TestReleasedTogether: all holders give their slots back at one moment, to as
// many who wait; and again when nobody waits. Nobody is forgotten, and no claim
// stays behind in the document.
func TestReleasedTogether(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	const many = 16
	wave := func(n int) (claims []*slots.Claim, waits []<-chan got) {
		for i := range 2 * many {
			h := slots.Holder{Node: fmt.Sprintf("wave-%d", n), ID: fmt.Sprint(i), Durable: i%2 == 0}
			if i < many {
				claims = append(claims, mustAcquire(t, steady(t, srv.Client()), "g", many, h))
				continue
			}
			waits = append(waits, waiting(t, t.Context(), steady(t, srv.Client()), "g", h))
		}
		return claims, waits
	}
	release := func(claims []*slots.Claim) {
		var all sync.WaitGroup
		for _, c := range claims {
			all.Go(func() { mustRelease(t, c) })
		}
		all.Wait()
	}
	for n := range 3 {
		claims, waits := wave(n)
		release(claims)
		claims = nil
		for _, w := range waits {
			claims = append(claims, mustGet(t, w))
		}
		until(t, s, "g", "the new holders alone", func(v slots.View) bool { return len(v.Holders) == many && len(alive(v.Holders)) == many })
		release(claims)
		if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
			t.Fatalf("Show = %+v; want nobody", v)
		}
	}
}

// TestTheFirstOfTheQueueIsNotThere: a durable waiter keeps its place when its
// process is gone. Whoever looks at the group lets it go, and who waits behind it.
func TestTheFirstOfTheQueueIsNotThere(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	first := mustAcquire(t, s, "g", 2, durable("a"))
	second := mustAcquire(t, s, "g", 2, durable("b"))
	// What a process leaves behind that was killed while it waited.
	put(t, srv, "slots/g/wait/n1/dead", `{"format":1,"since":"2026-01-01T00:00:00Z"}`)
	put(t, srv, "slots/g", `{"format":1,"max":2,"queue":["n1/dead"],"holders":{"n1/a":{"since":"2026-01-01T00:00:00Z"},"n1/b":{"since":"2026-01-01T00:00:00Z"}}}`)
	next := waiting(t, t.Context(), s, "g", durable("c"))
	mustRelease(t, first)
	mustRelease(t, second)
	if err := s.Resize(t.Context(), "g", 2); err != nil {
		t.Fatal(err)
	}
	claim := mustGet(t, next)
	if v := mustShow(t, s, "g"); len(v.Holders) != 2 || !has(v.Holders, "n1", "dead") || len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want that both hold a slot", v)
	}
	mustRelease(t, claim)
	taken := mustAcquire(t, host(t, srv.Client()), "g", slots.Keep, durable("dead"))
	mustRelease(t, taken)
}

// TestTheLastWaiterLeaves: a slot that was left to those who wait is free when
// they go instead.
func TestTheLastWaiterLeaves(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	for i := range 20 {
		holders := []*slots.Claim{
			mustAcquire(t, s, "g", 2, durable(fmt.Sprint("a", i))), mustAcquire(t, s, "g", 2, durable(fmt.Sprint("b", i))),
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := waiting(t, ctx, s, "g", durable(fmt.Sprint("c", i)))
		var all sync.WaitGroup
		all.Go(cancel)
		for _, c := range holders {
			all.Go(func() { mustRelease(t, c) })
		}
		all.Wait()
		if r := <-w; r.err == nil { // it was faster
			mustRelease(t, r.claim)
		}
		if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
			t.Fatalf("Show = %+v; want nobody", v)
		}
	}
}

// TestPatientClaims: where many wait already those who are patient stay outside
// the queue, and all of them get their turn.
func TestPatientClaims(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	const claims, most = 60, 16
	first := mustAcquire(t, s, "g", 2, durable("first"))
	second := mustAcquire(t, s, "g", 2, durable("second"))
	var all sync.WaitGroup
	for i := range claims {
		mine := steady(t, srv.Client())
		all.Go(func() {
			h := slots.Holder{Node: "patient", ID: fmt.Sprint(i), Durable: true, Patient: true}
			c, err := mine.Acquire(t.Context(), "g", slots.Keep, h)
			if err != nil {
				t.Error(err)
				return
			}
			v, _, err := s.Show(t.Context(), "g")
			if err != nil || len(alive(v.Holders)) > 2 || len(v.Queue) > most {
				t.Errorf("Show = %+v, %v; want two holders and a short queue", v, err)
			}
			if err := mine.Release(t.Context(), "g", h.Node, h.ID); err != nil {
				t.Error(err)
			}
			if err := c.Detach(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, s, "g", "a queue as long as may be", func(v slots.View) bool { return len(v.Queue) == most })
	impatient := waiting(t, t.Context(), s, "g", durable("impatient"))
	mustRelease(t, first)
	mustRelease(t, second)
	all.Wait()
	mustRelease(t, mustGet(t, impatient))
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want nobody", v)
	}
}
