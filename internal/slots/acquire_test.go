package slots_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
	"github.com/jorc/jorc/internal/text"
)

func TestAcquire(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	c := mustAcquire(t, s, "g", slots.Keep, holder("a"))
	if c.Context().Err() != nil || c.Err() != nil {
		t.Errorf("a new claim: %v, %v", c.Context().Err(), c.Err())
	}
	v := mustShow(t, s, "g")
	if v.Max != 1 || len(v.Holders) != 1 || len(v.Queue) != 0 {
		t.Fatalf("Show = %+v; want one holder of one slot", v)
	}
	if e := v.Holders[0]; e.Node != "n1" || e.ID == "" || e.Since.IsZero() || e.Reason != "a" {
		t.Errorf("holder = %+v", e)
	}
	next := waiting(t, t.Context(), s, "g", holder("b"))
	if e := mustShow(t, s, "g").Queue[0]; e.Reason != "b" || e.Since.IsZero() {
		t.Errorf("waiter = %+v", e)
	}
	mustRelease(t, c)
	if c.Context().Err() == nil {
		t.Error("the context outlives Release")
	}
	mustRelease(t, mustGet(t, next))
	mustRelease(t, c) // again
	wantFree(t, s)
	if names, err := s.Groups(t.Context()); err != nil || !slices.Equal(names, []string{"g"}) {
		t.Errorf("Groups = %v, %v", names, err)
	}
	keys, _, err := srv.Client().KVKeys(t.Context(), "jorc/", "", consul.Query{})
	if err != nil || !slices.Equal(keys, []string{"jorc/default/slots/group/g"}) {
		t.Errorf("%v is left, %v; want the number alone", keys, err)
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	t.Parallel()
	s := steady(t, newServer(t).Client())
	for _, tt := range []struct{ group, node string }{
		{"", "n"},
		{"a/b", "n"},
		{"g", ""},
		{"g", "n/m"},
		{"g", "\x00"},
		{"..", "n"},
		{slots.Reserved, "n"},
	} {
		_, err := s.Acquire(t.Context(), tt.group, 1, slots.Holder{Node: tt.node})
		wantIs(t, "Acquire", err, text.ErrName)
	}
	_, _, err := s.Show(t.Context(), "a/b")
	wantIs(t, "Show", err, text.ErrName)
	_, err = s.Unlock(t.Context(), "", "n", "")
	wantIs(t, "Unlock", err, text.ErrName)
}

// TestExclusion lets many hosts pass through few slots.
func TestExclusion(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	const hosts, rounds, limit = 50, 2, 3
	var inside, entries atomic.Int64
	var all sync.WaitGroup
	for i := range hosts {
		s := steady(t, srv.Client())
		h := holder(fmt.Sprint(i))
		all.Go(func() {
			for range rounds {
				c, err := s.Acquire(t.Context(), "g", limit, h)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > limit {
					t.Errorf("%d hold one of %d slots", n, limit)
				}
				entries.Add(1)
				if _, err := kv.NewTextTree(kv.New(srv.Client(), "other"), "").List(c.Context()); err != nil {
					t.Error(err) // something that takes a while
				}
				inside.Add(-1)
				if err := c.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if entries.Load() != hosts*rounds {
		t.Errorf("%d entries; want %d", entries.Load(), hosts*rounds)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("first"))
	ids := []string{"a", "b", "c", "d", "e"}
	var results []<-chan got
	for _, id := range ids {
		results = append(results, waiting(t, t.Context(), steady(t, srv.Client()), "g", holder(id)))
	}
	for i := range ids {
		mustRelease(t, c)
		c = mustGet(t, results[i])
		if v := mustShow(t, s, "g"); len(v.Holders) != 1 || v.Holders[0].Reason != ids[i] || len(v.Queue) != len(ids)-i-1 {
			t.Errorf("after %s was told: %+v", ids[i], v)
		}
	}
}

func TestAWaiterThatGoes(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("a"))
	ctx, cancel := context.WithCancel(t.Context())
	result := waiting(t, ctx, s, "g", holder("b"))
	behind := waiting(t, t.Context(), steady(t, srv.Client()), "g", holder("c"))
	cancel()
	wantIs(t, "Acquire", (<-result).err, context.Canceled)
	if v := mustShow(t, s, "g"); has(v.Queue, holder("b")) {
		t.Errorf("Show = %+v; want that b is gone", v)
	}
	mustRelease(t, c)
	mustRelease(t, mustGet(t, behind))
}

// TestLiveResize: the latest request sets the number of slots. A larger one
// admits claims that wait, a smaller one takes no slot away.
func TestLiveResize(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	held := []*kv.Lease{mustAcquire(t, s, "g", 1, holder("a"))}
	b, c := waiting(t, t.Context(), s, "g", holder("b")), waiting(t, t.Context(), s, "g", holder("c"))
	more := waitingOf(t, t.Context(), s, "g", 3, holder("d"))
	held = append(held, mustGet(t, b), mustGet(t, c))
	less := waitingOf(t, t.Context(), s, "g", 1, holder("e"))
	for i, claim := range held {
		if v := mustShow(t, s, "g"); len(v.Holders) != 3-i || len(v.Queue) != 2 || v.Max != 1 {
			t.Errorf("after %d releases: %+v; want no new holder", i, v)
		}
		if claim.Context().Err() != nil {
			t.Error("a smaller limit took a slot away")
		}
		mustRelease(t, claim)
	}
	last := mustGet(t, more)
	other := mustAcquire(t, s, "g", 0, holder("f")) // no limit from now on
	mustRelease(t, mustGet(t, less))
	mustRelease(t, other)
	mustRelease(t, last)
	if v, exists, err := s.Show(t.Context(), "g"); err != nil || !exists || v.Max != 0 {
		t.Errorf("Show = %+v, %v, %v; want that the number remains", v, exists, err)
	}
}

// TestManyGoAtOnce lifts the limit under many waiters, and unlocks them all.
func TestManyGoAtOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("first"))
	const waiters = 80
	var all, told sync.WaitGroup
	told.Add(waiters)
	for i := range waiters {
		mine := steady(t, srv.Client())
		all.Go(func() {
			claim, err := mine.Acquire(t.Context(), "g", slots.Keep, holder(fmt.Sprint(i)))
			told.Done()
			if err != nil {
				t.Error(err)
				return
			}
			<-claim.Context().Done() // until it is unlocked
			wantIs(t, "Release", claim.Release(t.Context()), kv.ErrLockLost)
		})
	}
	until(t, s, "g", "all in the queue", func(v slots.View) bool { return len(v.Queue) == waiters })
	other := mustAcquire(t, s, "g", 0, slots.Holder{Node: "n2", Reason: "other"})
	told.Wait()
	if v := mustShow(t, s, "g"); len(v.Holders) != waiters+2 || len(v.Queue) != 0 {
		t.Errorf("%d hold a slot, %d wait; want %d and none", len(v.Holders), len(v.Queue), waiters+2)
	}
	out, err := s.Unlock(t.Context(), "g", "n1", "")
	if err != nil || len(out) != waiters+1 {
		t.Errorf("Unlock = %d names, %v; want %d", len(out), err, waiters+1)
	}
	all.Wait()
	lost(t, c)
	wantIs(t, "Release", c.Release(t.Context()), kv.ErrLockLost)
	mustRelease(t, other)
}

// TestReleasedTogether: all holders give their slots back at one moment, to as
// many claims that wait; and again when none waits.
func TestReleasedTogether(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	const many = 16
	release := func(claims []*kv.Lease) {
		var all sync.WaitGroup
		for _, c := range claims {
			all.Go(func() { mustRelease(t, c) })
		}
		all.Wait()
	}
	for n := range 3 {
		var claims []*kv.Lease
		var waits []<-chan got
		for i := range 2 * many {
			h := slots.Holder{Node: fmt.Sprintf("wave-%d", n), Reason: fmt.Sprint(i)}
			if i < many {
				claims = append(claims, mustAcquire(t, steady(t, srv.Client()), "g", many, h))
				continue
			}
			waits = append(waits, waiting(t, t.Context(), steady(t, srv.Client()), "g", h))
		}
		release(claims)
		claims = nil
		for _, w := range waits {
			claims = append(claims, mustGet(t, w))
		}
		if v := mustShow(t, s, "g"); len(v.Holders) != many || len(v.Queue) != 0 {
			t.Errorf("Show = %+v; want the new holders alone", v)
		}
		release(claims)
		wantFree(t, s)
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	srv := newServer(t, consultest.WithACL())
	for name, rules := range map[string]string{
		"nothing":     ``,
		"read only":   `key_prefix "jorc/" { policy = "read" } session_prefix "" { policy = "write" }`,
		"no sessions": `key_prefix "jorc/" { policy = "write" }`,
		"no claims":   `key_prefix "jorc/default/slots/group/" { policy = "write" } session_prefix "" { policy = "write" }`,
	} {
		s := steady(t, srv.ClientWithToken(srv.NewToken(rules)))
		_, err := s.Acquire(t.Context(), "g", 1, slots.Holder{Node: "n1"})
		wantIs(t, name, err, consul.ErrDenied)
	}
	own := srv.NewToken(`key_prefix "jorc/default/slots/" { policy = "read" } key_prefix "jorc/default/slots/group/" { policy = "write" }
		key_prefix "jorc/default/slots/claim/n1/" { policy = "write" } session_prefix "" { policy = "write" }`)
	s := steady(t, srv.ClientWithToken(own))
	mustRelease(t, mustAcquire(t, s, "g", 1, holder("a")))
	other := mustAcquire(t, steady(t, srv.Client()), "g", 1, slots.Holder{Node: "n2", Reason: "other"})
	_, err := s.Acquire(t.Context(), "g", 1, slots.Holder{Node: "n2"})
	wantIs(t, "a claim for another host", err, consul.ErrDenied)
	_, err = s.Unlock(t.Context(), "g", "n2", "")
	wantIs(t, "Unlock of another host's claim", err, consul.ErrDenied)
	if err := other.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, other)
}
