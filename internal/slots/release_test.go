package slots_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
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

// TestPatientClaims: where many wait already one that is patient stays outside
// the queue, and gets its turn all the same.
func TestPatientClaims(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	const most = 16
	first := mustAcquire(t, s, "g", 2, durable("first"))
	second := mustAcquire(t, s, "g", 2, durable("second"))
	var waits []<-chan got
	for i := range most {
		waits = append(waits, waiting(t, t.Context(), s, "g", durable(fmt.Sprint(i))))
	}
	outside, proxy := behind(t, srv)
	patient := make(chan got, 1)
	go func() {
		h := durable("patient")
		h.Patient = true
		c, err := outside.Acquire(t.Context(), "g", slots.Keep, h)
		patient <- got{c, err}
	}()
	consultest.Eventually(t, "it to watch one who waits", func(context.Context) error {
		if proxy.Asked("/v1/kv/jorc/default/slots/g/wait/") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if v := mustShow(t, s, "g"); len(v.Queue) != most || has(v.Queue, "n1", "patient") {
		t.Errorf("Show = %+v; want it outside", v)
	}
	mustRelease(t, first)
	mustRelease(t, second)
	for _, w := range waits {
		mustRelease(t, mustGet(t, w))
	}
	mustRelease(t, mustGet(t, patient))
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want nobody", v)
	}
}

// TestAllComeAtOnce: many line up at one moment, with slots and without.
func TestAllComeAtOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	const claims, limit = 40, 15
	results := make(chan got, claims)
	for i := range claims {
		mine := steady(t, srv.Client())
		go func() {
			c, err := mine.Acquire(t.Context(), "g", limit, slots.Holder{Node: "n1", ID: fmt.Sprint(i), Durable: i%2 == 0, Patient: i%3 == 0})
			results <- got{c, err}
		}()
	}
	for range claims {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		if v := mustShow(t, s, "g"); len(v.Holders) > limit {
			t.Errorf("%d hold one of %d slots", len(v.Holders), limit)
		}
		mustRelease(t, r.claim)
	}
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want nobody", v)
	}
}
