package slots_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/consul"
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

// cutOff makes a proxy's host one that nobody hears of.
func cutOff(p *consultest.Proxy) {
	p.Do(func(*http.Request) consultest.Fault { return consultest.Fault{Hang: true} })
}

// lost waits for the end of the claim and checks all that follows.
func lost(t *testing.T, c *slots.Claim) {
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

// TestPartition cuts the holder off: it is told, and then the next gets in.
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
	proxy.Do(nil) // those who come back line up again
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
	key := func() string {
		p, _, err := srv.Client().KVGet(t.Context(), "jorc/default/slots/g/held/n1/a", consul.Query{})
		if err != nil || p == nil {
			t.Fatalf("the held key: %v, %v", p, err)
		}
		return p.Session
	}
	next := waiting(t, t.Context(), s, "g", holder("b"))
	if err := srv.Client().SessionDestroy(t.Context(), key()); err != nil {
		t.Fatal(err)
	}
	lost(t, c)
	mustRelease(t, mustGet(t, next))
	wantIs(t, "Release", c.Release(t.Context()), kv.ErrLockLost)
}

func TestUnlock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, durable("a"))
	waiter := waiting(t, t.Context(), s, "g", holder("b"))
	next := waiting(t, t.Context(), s, "g", slots.Holder{Node: "n2", ID: "c"})
	out, err := host(t, srv.Client()).Unlock(t.Context(), "g", "n1", "")
	if err != nil || fmt.Sprint(out) != "[n1/b n1/a]" {
		t.Errorf("Unlock = %v, %v; want the waiter and the holder", out, err)
	}
	lost(t, c)
	wantIs(t, "Acquire", (<-waiter).err, kv.ErrLockLost)
	claim := mustGet(t, next)
	if out, err := s.Unlock(t.Context(), "g", "n2", "other"); err != nil || len(out) != 0 {
		t.Errorf("Unlock = %v, %v; want nobody", out, err)
	}
	if claim.Context().Err() != nil {
		t.Error("Unlock took another's slot away")
	}
	if _, err := s.Unlock(t.Context(), "g", "n2", "c"); err != nil {
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

// TestCheckIn: who lost the slot cannot write what depends on it.
func TestCheckIn(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s, store := host(t, srv.Client()), kv.New(srv.Client(), "jorc/default")
	for _, h := range []slots.Holder{holder("a"), durable("b")} {
		c := mustAcquire(t, s, "g", 1, h)
		txn := store.Txn().Set("written", []byte(h.ID))
		c.CheckIn(txn)
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Errorf("Commit of the holder = %v", err)
		}
		if _, err := s.Unlock(t.Context(), "g", "n1", h.ID); err != nil {
			t.Fatal(err)
		}
		txn = store.Txn().Set("written", []byte("too late"))
		c.CheckIn(txn)
		_, err := txn.Commit(t.Context())
		wantIs(t, "Commit of one that lost it", err, kv.ErrConflict)
	}
}

// TestAnswersThatAreLost cuts writes off before Consul has them and after it
// carried them out: the claim is made and given back once.
func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	watch := host(t, srv.Client())
	for i := range int64(6) {
		for _, after := range []bool{false, true} {
			for _, h := range []slots.Holder{holder("a"), durable("b")} {
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
				c := mustAcquire(t, s, "g", 1, h)
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
}

// TestNothingIsWrittenWhileNothingChanges holds and waits through several
// renewals of the sessions.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s, proxy := behind(t, srv)
	mustAcquire(t, s, "g", 1, holder("a"))
	ctx, cancel := context.WithCancel(t.Context())
	b, c := waiting(t, ctx, s, "g", holder("b")), waiting(t, ctx, s, "g", durable("c"))
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
