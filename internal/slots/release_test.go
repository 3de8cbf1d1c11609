package slots_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/kv"
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

// TestOutside: where many wait already patient claims stay outside the queue,
// and get their turn all the same; who gives up leaves nothing behind.
func TestOutside(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	const all = 60
	holders := []*slots.Claim{mustAcquire(t, s, "g", 2, durable("first")), mustAcquire(t, s, "g", 2, durable("second"))}
	var waits []<-chan got
	var leave []context.CancelFunc
	for i := range all {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waits, leave = append(waits, waiting(t, ctx, steady(t, srv.Client()), "g", patient(fmt.Sprint(i)))), append(leave, cancel)
	}
	doc := kv.NewDoc[slots.Group](kv.New(srv.Client(), "jorc/default"), "slots/g", 1)
	if e, err := doc.Get(t.Context()); err != nil || len(e.Value.Queue) == 0 || len(e.Value.Queue) > all/4 {
		t.Errorf("the document is %+v, %v; want a short queue", e.Value, err)
	}
	gone := map[int]bool{all - 1: true}
	for i := 2; i < all-1; i += 4 { // of those outside
		gone[i] = true
		leave[i]()
		if r := <-waits[i]; !errors.Is(r.err, context.Canceled) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	out, err := s.Unlock(t.Context(), "g", "n1", fmt.Sprint(all-1))
	if err != nil || len(out) != 1 {
		t.Errorf("Unlock = %v, %v", out, err)
	}
	if r := <-waits[all-1]; !errors.Is(r.err, kv.ErrLockLost) {
		t.Errorf("who was unlocked: %+v", r)
	}
	var going sync.WaitGroup
	for _, c := range holders {
		going.Go(func() { mustRelease(t, c) })
	}
	for i, w := range waits {
		if !gone[i] {
			going.Go(func() {
				if r := <-w; r.err != nil {
					t.Errorf("%d: %v", i, r.err)
				} else {
					mustRelease(t, r.claim)
				}
			})
		}
	}
	going.Wait()
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want nobody", v)
	}
}

// TestStranded: a claim that relied on a queue whose last member was killed
// before it looked once more is let in by whoever looks at the group.
func TestStranded(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	put(t, srv, "slots/g", `{"format":1,"max":2,"queue":[],"holders":{}}`)
	put(t, srv, "slots/g/wait/n1/a", `{"format":1,"since":"2026-01-01T00:00:00Z","reason":"stranded"}`)
	put(t, srv, "slots/g/wait/n1/bad", `nonsense`)
	put(t, srv, "slots/g/wait/stray", `{"format":1}`)
	if v := mustShow(t, s, "g"); !has(v.Queue, "n1", "a") {
		t.Errorf("Show = %+v; want it to wait", v)
	}
	if err := s.Resize(t.Context(), "g", 2); err != nil {
		t.Fatal(err)
	}
	if v := mustShow(t, s, "g"); len(v.Holders) != 1 || v.Holders[0].Reason != "stranded" || has(v.Queue, "n1", "bad") {
		t.Errorf("Show = %+v; want it to hold a slot", v)
	}
	mustRelease(t, mustAcquire(t, s, "g", slots.Keep, patient("a")))
}

// TestComesBackFromOutside: a process that was killed while its claim waited
// outside leaves nothing behind once the next one of that name has had its slot.
func TestComesBackFromOutside(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	put(t, srv, "slots/g", `{"format":1,"max":1,"queue":[],"holders":{}}`)
	put(t, srv, "slots/g/wait/n1/a", `{"format":1,"since":"2026-01-01T00:00:00Z"}`)
	mustRelease(t, mustAcquire(t, s, "g", 1, durable("a")))
	mustRelease(t, mustAcquire(t, s, "g", 1, holder("b")))
	put(t, srv, "slots/g/wait/n1/bad", "nonsense")
	if err := s.Resize(t.Context(), "g", 1); err != nil {
		t.Fatal(err)
	}
	if v := mustShow(t, s, "g"); len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want that nobody waits", v)
	}
	put(t, srv, "slots/g/wait/n1/c", `{"format":1,"since":"2026-01-01T00:00:00Z"}`)
	mustRelease(t, mustAcquire(t, s, "g", slots.Keep, patient("c")))
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
			c, err := mine.Acquire(t.Context(), "g", limit, slots.Holder{Node: "n1", ID: fmt.Sprint(i), Durable: i%2 == 0})
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
