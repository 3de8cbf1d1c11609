package slots_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

func TestAcquire(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", slots.Keep, holder("a"))
	if c.Context().Err() != nil || c.Err() != nil || c.Node() != "n1" || c.ID() != "a" {
		t.Errorf("a new claim %s/%s: %v, %v", c.Node(), c.ID(), c.Context().Err(), c.Err())
	}
	v := mustShow(t, s, "g")
	if v.Max != 1 || len(v.Holders) != 1 || len(v.Queue) != 0 {
		t.Fatalf("Show = %+v; want one holder of one slot", v)
	}
	if e := v.Holders[0]; e.Node != "n1" || e.ID != "a" || e.Since.IsZero() || e.Reason != "test" || e.Durable || e.Gone {
		t.Errorf("holder = %+v", e)
	}
	next := waiting(t, t.Context(), s, "g", holder("b"))
	if e := mustShow(t, s, "g").Queue[0]; e.Reason != "test" || e.Since.IsZero() || e.Gone {
		t.Errorf("waiter = %+v", e)
	}
	mustRelease(t, c)
	if c.Context().Err() == nil {
		t.Error("the context outlives Release")
	}
	mustRelease(t, mustGet(t, next))
	mustRelease(t, c) // again
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want nobody", v)
	}
	if names, err := s.Groups(t.Context()); err != nil || !slices.Equal(names, []string{"g"}) {
		t.Errorf("Groups = %v, %v", names, err)
	}
	keys, _, err := srv.Client().KVKeys(t.Context(), "jorc/", "", consul.Query{})
	if err != nil || !slices.Equal(keys, []string{"jorc/default/slots/g"}) {
		t.Errorf("%v is left, %v; want the document alone", keys, err)
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	t.Parallel()
	s := host(t, newServer(t).Client())
	for _, tt := range []struct{ group, node, id string }{
		{"", "n", "i"},
		{"a/b", "n", "i"},
		{"g", "", "i"},
		{"g", "n/m", "i"},
		{"g", "n", "a/b"},
		{"g", "n", "\x00"},
		{"..", "n", "i"},
	} {
		_, err := s.Acquire(t.Context(), tt.group, 1, slots.Holder{Node: tt.node, ID: tt.id})
		wantIs(t, "Acquire", err, slots.ErrName)
	}
	_, _, err := s.Show(t.Context(), "a/b")
	wantIs(t, "Show", err, slots.ErrName)
	wantIs(t, "Resize", s.Resize(t.Context(), "", 1), slots.ErrName)
	_, err = s.Unlock(t.Context(), "", "n", "")
	wantIs(t, "Unlock", err, slots.ErrName)
}

// TestExclusion lets many hosts pass through few slots.
func TestExclusion(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	const hosts, rounds, limit = 50, 2, 3
	var inside, entries atomic.Int64
	var all sync.WaitGroup
	for i := range hosts {
		s := host(t, srv.Client())
		h := slots.Holder{Node: "n1", Reason: "test", Durable: i%3 == 0}
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
		if v := mustShow(t, s, "g"); len(v.Holders) != 1 || v.Holders[0].ID != ids[i] || len(v.Queue) != len(ids)-i-1 {
			t.Errorf("after %s was told: %+v", ids[i], v)
		}
	}
}

func TestAWaiterThatGoes(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("a"))
	for _, h := range []slots.Holder{holder("b"), durable("c")} {
		ctx, cancel := context.WithCancel(t.Context())
		result := waiting(t, ctx, s, "g", h)
		behind := waiting(t, t.Context(), steady(t, srv.Client()), "g", holder("behind-"+h.ID))
		cancel()
		wantIs(t, "Acquire", (<-result).err, context.Canceled)
		if v := mustShow(t, s, "g"); has(v.Queue, "n1", h.ID) {
			t.Errorf("Show = %+v; want that %s is gone", v, h.ID)
		}
		mustRelease(t, c)
		c = mustGet(t, behind)
	}
}

func TestLiveResize(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	first := mustAcquire(t, s, "g", 1, holder("a"))
	b, c, d := waiting(t, t.Context(), s, "g", holder("b")), waiting(t, t.Context(), s, "g", holder("c")), waiting(t, t.Context(), s, "g", holder("d"))
	if err := s.Resize(t.Context(), "g", 3); err != nil {
		t.Fatal(err)
	}
	held := []*slots.Claim{first, mustGet(t, b), mustGet(t, c)}
	if err := s.Resize(t.Context(), "g", 1); err != nil {
		t.Fatal(err)
	}
	for i, claim := range held {
		if v := mustShow(t, s, "g"); len(alive(v.Holders)) != 3-i || len(v.Queue) != 1 || v.Max != 1 {
			t.Errorf("after %d releases: %+v; want that nobody else goes", i, v)
		}
		if claim.Context().Err() != nil {
			t.Error("a smaller limit took a slot away")
		}
		mustRelease(t, claim)
	}
	last := mustGet(t, d)
	more := waiting(t, t.Context(), s, "g", holder("e"))
	other := mustAcquire(t, s, "g", 0, holder("f")) // the last to ask says: no limit
	mustRelease(t, mustGet(t, more))
	mustRelease(t, other)
	mustRelease(t, last)
}

// TestManyGoAtOnce lifts the limit under more waiters than fit into one transaction.
func TestManyGoAtOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("first"))
	const waiters = 40
	var all, told sync.WaitGroup
	told.Add(waiters)
	for range waiters {
		mine := host(t, srv.Client())
		all.Go(func() {
			claim, err := mine.Acquire(t.Context(), "g", slots.Keep, durable(""))
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
	if err := s.Resize(t.Context(), "g", 0); err != nil {
		t.Fatal(err)
	}
	told.Wait()
	if v := mustShow(t, s, "g"); len(v.Holders) != waiters+1 || len(v.Queue) != 0 {
		t.Errorf("%d hold a slot, %d wait; want %d and none", len(v.Holders), len(v.Queue), waiters+1)
	}
	out, err := s.Unlock(t.Context(), "g", "n1", "")
	if err != nil || len(out) != waiters+1 {
		t.Errorf("Unlock = %d names, %v; want %d", len(out), err, waiters+1)
	}
	all.Wait()
	lost(t, c)
	wantIs(t, "Release", c.Release(t.Context()), kv.ErrLockLost)
}

func TestDenied(t *testing.T) {
	t.Parallel()
	srv := newServer(t, consultest.WithACL())
	for name, rules := range map[string]string{
		"nothing":     ``,
		"read only":   `key_prefix "jorc/" { policy = "read" } session_prefix "" { policy = "write" }`,
		"no sessions": `key_prefix "jorc/" { policy = "write" }`,
		"no claims":   `key "jorc/default/slots/g" { policy = "write" } session_prefix "" { policy = "write" }`,
	} {
		s := host(t, srv.ClientWithToken(srv.NewToken(rules)))
		_, err := s.Acquire(t.Context(), "g", 1, slots.Holder{Node: "n1"})
		wantIs(t, name, err, consul.ErrDenied)
	}
	s := host(t, srv.ClientWithToken(srv.NewToken(`key_prefix "jorc/default/slots/" { policy = "write" } session_prefix "" { policy = "write" }`)))
	mustRelease(t, mustAcquire(t, s, "g", 1, holder("a")))
}
