package slots_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// behind returns a host whose requests go through a proxy.
func behind(t *testing.T, srv *consultest.Server) (*slots.Slots, *consultest.Proxy) {
	t.Helper()
	p := srv.Proxy()
	return host(t, p.Client()), p
}

// cutOff lets no request through the proxy.
func cutOff(p *consultest.Proxy) {
	p.Do(func(*http.Request) consultest.Fault { return consultest.Fault{Hang: true} })
}

// lost waits for the end of the claim and checks all that follows.
func lost(t *testing.T, c *kv.Lease) {
	t.Helper()
	<-c.Context().Done()
	wantIs(t, "the context's cause", context.Cause(c.Context()), kv.ErrLockLost)
	wantIs(t, "Err", c.Err(), kv.ErrLockLost)
}

// TestHolderIsToldInTime freezes Consul: the holder must step down by its own
// clock before Consul, once it answers again, can let the next in.
func TestHolderIsToldInTime(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := mustAcquire(t, host(t, srv.Client()), "g", 1, holder("a"))
	next := waiting(t, t.Context(), host(t, srv.Client()), "g", holder("b"))
	srv.Freeze()
	lost(t, c)
	select {
	case <-next:
		t.Error("the next was let in while Consul was frozen")
	default:
	}
	srv.Thaw()
	mustRelease(t, mustGet(t, next))
	wantIs(t, "Release", c.Release(t.Context()), kv.ErrLockLost)
}

// TestPartition cuts the holder off: it notices that, and then the next gets in.
func TestPartition(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	alone, proxy := behind(t, srv)
	c := mustAcquire(t, alone, "g", 1, holder("a"))
	next := waiting(t, t.Context(), host(t, srv.Client()), "g", holder("b"))
	cutOff(proxy)
	second := mustGet(t, next)
	if c.Context().Err() == nil {
		t.Error("the next was let in under the holder")
	}
	lost(t, c)
	proxy.Do(nil)
	wantIs(t, "Release", c.Release(t.Context()), kv.ErrLockLost)
	if second.Context().Err() != nil {
		t.Error("the release of the one that had lost it took the slot from the next")
	}
}

// TestWaitersThatAreCutOff cuts off the holder and the first two waiters at
// once: the third finds out.
func TestWaitersThatAreCutOff(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	alone, proxy := behind(t, srv)
	mustAcquire(t, alone, "g", 1, holder("a"))
	ctx, cancel := context.WithCancel(t.Context())
	b, c := waiting(t, ctx, alone, "g", holder("b")), waiting(t, ctx, alone, "g", holder("c"))
	d := waiting(t, t.Context(), host(t, srv.Client()), "g", holder("d"))
	cutOff(proxy)
	claim := mustGet(t, d)
	if v := mustShow(t, host(t, srv.Client()), "g"); len(v.Holders) != 1 || len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want that the dead are gone", v)
	}
	proxy.Do(nil) // the claims that come back line up again
	until(t, host(t, srv.Client()), "g", "two in the queue", func(v slots.View) bool { return len(v.Queue) == 2 })
	mustRelease(t, claim)
	select {
	case r := <-b:
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.claim)
		mustRelease(t, mustGet(t, c))
	case r := <-c:
		if r.err != nil {
			t.Fatal(r.err)
		}
		mustRelease(t, r.claim)
		mustRelease(t, mustGet(t, b))
	}
	cancel()
}

func TestSessionDestroyedByHand(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("a"))
	next := waiting(t, t.Context(), s, "g", holder("b"))
	if err := srv.Client().SessionDestroy(t.Context(), keyOf(t, srv, "a").Session); err != nil {
		t.Fatal(err)
	}
	lost(t, c)
	mustRelease(t, mustGet(t, next))
	wantIs(t, "Release", c.Release(t.Context()), kv.ErrLockLost)
}

func TestUnlock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("a"))
	waiter := waiting(t, t.Context(), s, "g", holder("b"))
	other := slots.Holder{Node: "n2", Reason: "c"}
	next := waiting(t, t.Context(), s, "g", other)
	name := func(reason string) string {
		_, id, _ := strings.Cut(strings.TrimPrefix(keyOf(t, srv, reason).Key, "jorc/default/slots/claim/n1/"), "/")
		return "n1/" + id
	}
	want := []string{name("b"), name("a")}
	out, err := s.Unlock(t.Context(), "g", "n1", "")
	if err != nil || !slices.Equal(out, want) {
		t.Errorf("Unlock = %v, %v; want the waiter and the holder, %v", out, err, want)
	}
	lost(t, c)
	wantIs(t, "Acquire", (<-waiter).err, kv.ErrLockLost)
	claim := mustGet(t, next)
	if out, err := s.Unlock(t.Context(), "g", "n2", "other"); err != nil || len(out) != 0 {
		t.Errorf("Unlock = %v, %v; want no claim", out, err)
	}
	if claim.Context().Err() != nil {
		t.Error("Unlock took another's slot away")
	}
	if _, err := s.Unlock(t.Context(), "g", "n2", mustShow(t, s, "g").Holders[0].ID); err != nil {
		t.Fatal(err)
	}
	lost(t, claim)
	if _, err := s.Unlock(t.Context(), "nobody-asked-for", "n1", ""); err != nil {
		t.Errorf("Unlock of a group that is not there = %v", err)
	}
	if names, err := s.Groups(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("Groups = %v, %v; want that it made none", names, err)
	}
}

// TestRemoveNode takes all claims of a host away and those of no other.
func TestRemoveNode(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	a, b := mustAcquire(t, s, "g", 1, holder("a")), mustAcquire(t, s, "h", 1, holder("b"))
	next := waiting(t, t.Context(), s, "g", slots.Holder{Node: "n11", Reason: "c"})
	put(t, srv, "slots/claim/n1/old/restored", "nonsense")
	out, err := s.RemoveNode(t.Context(), "n1")
	if err != nil || len(out) != 3 || !strings.HasPrefix(out[0], "g/") || !strings.HasPrefix(out[1], "h/") || out[2] != "old/restored" {
		t.Errorf("RemoveNode = %v, %v", out, err)
	}
	lost(t, a)
	lost(t, b)
	mustRelease(t, mustGet(t, next))
}

// TestDamagedKeys damages the number of the group and the value of a waiter:
// claims keep their order, and no claim is admitted too early.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"damaged": `{"max":`, "emptied": ``, "negative": `{"max":-1}`, "another type": `[]`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			s := steady(t, srv.Client())
			c := mustAcquire(t, s, "g", 1, holder("a"))
			next := waiting(t, t.Context(), s, "g", holder("b"))
			key := strings.TrimPrefix(keyOf(t, srv, "b").Key, "jorc/default/")
			put(t, srv, "slots/group/g", value)
			put(t, srv, key, value)
			last := waiting(t, t.Context(), s, "g", holder("c"))
			if v := mustShow(t, s, "g"); len(v.Holders) != 1 || len(v.Queue) != 2 || v.Max != 1 {
				t.Errorf("Show = %+v; want one holder and two waiters", v)
			}
			mustRelease(t, c)
			second := mustGet(t, next)
			if v := mustShow(t, s, "g"); len(v.Holders) != 1 || len(v.Queue) != 1 || v.Holders[0].Reason != "b" {
				t.Errorf("Show = %+v; want one holder and one waiter", v)
			}
			mustRelease(t, second)
			mustRelease(t, mustGet(t, last))
		})
	}
}

func TestANewerNumber(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	put(t, srv, "slots/group/g", `{"format":99,"max":1}`)
	_, err := s.Acquire(t.Context(), "g", 1, holder("a"))
	wantIs(t, "Acquire", err, kv.ErrNewer)
	_, _, err = s.Show(t.Context(), "g")
	wantIs(t, "Show", err, kv.ErrNewer)
}

// TestStrayKeys: keys that no session locks, as of a restored backup, keep no
// claim from its slot.
func TestStrayKeys(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	put(t, srv, "slots/claim/n1/g/old", `{"format":1,"since":"2026-01-01T00:00:00Z","holds":true}`)
	put(t, srv, "slots/claim/n1/g", "x")
	put(t, srv, "slots/claim/n1/g/x/y", "x")
	put(t, srv, "slots/g", "x")
	put(t, srv, "slots/group/", "x")
	c := mustAcquire(t, s, "g", 1, holder("a"))
	if v := mustShow(t, s, "g"); len(v.Holders) != 1 || len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want one holder", v)
	}
	mustRelease(t, c)
}

// TestAnswersThatAreLost cuts writes off before Consul has them and after it
// carried them out: the claim is made and given back once.
func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	watch := host(t, srv.Client())
	for i := range int64(6) {
		for _, after := range []bool{false, true} {
			s, proxy := behind(t, srv)
			var left atomic.Int64
			left.Store(i)
			proxy.Do(func(r *http.Request) consultest.Fault {
				switch {
				case r.Method != http.MethodPut || left.Add(-1) < 0:
					return consultest.Fault{}
				case after:
					return consultest.Fault{Cut: 1}
				}
				return consultest.Fault{Status: http.StatusTooManyRequests}
			})
			c := mustAcquire(t, s, "g", 1, holder("a"))
			if v := mustShow(t, watch, "g"); len(v.Holders) != 1 || len(v.Queue) != 0 {
				t.Errorf("%d cuts (after: %v): %+v; want one holder", i, after, v)
			}
			left.Store(i)
			mustRelease(t, c)
			if v := mustShow(t, watch, "g"); len(v.Holders)+len(v.Queue) != 0 {
				t.Errorf("%d cuts (after: %v): %+v; want nobody", i, after, v)
			}
		}
	}
}

// TestNothingIsWrittenWhileNothingChanges holds and waits through several
// renewals of the sessions.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s, proxy := behind(t, srv)
	mustAcquire(t, s, "g", 1, holder("a"))
	ctx, cancel := context.WithCancel(t.Context())
	b, c := waiting(t, ctx, s, "g", holder("b")), waiting(t, ctx, s, "g", holder("c"))
	const renewals = 12
	index, since := 0, 0 // Consul writes things of its own in its first seconds
	consultest.Eventually(t, "twelve renewals without a write to Raft", func(context.Context) error {
		renewed := proxy.Asked("/v1/session/renew/")
		if now := raftIndex(t, srv); now != index {
			index, since = now, renewed
		}
		if renewed < since+renewals {
			return fmt.Errorf("%d so far", renewed-since)
		}
		return nil
	})
	cancel()
	<-b
	<-c
}
