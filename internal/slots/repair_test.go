package slots_test

import (
	"context"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

func put(t *testing.T, srv *consultest.Server, key, value string) {
	t.Helper()
	if err := srv.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// TestTheDocumentIsMadeAgain deletes and damages it under holders and waiters:
// nobody is let in in addition, and nobody is forgotten.
func TestTheDocumentIsMadeAgain(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, spoil := range map[string]func(){
		"deleted":  func() { remove(t, srv, "slots/g") },
		"damaged":  func() { put(t, srv, "slots/g", `{"max":`) },
		"emptied":  func() { put(t, srv, "slots/g", ``) },
		"unsound":  func() { put(t, srv, "slots/g", `{"max":1,"queue":["n1/b","n1/b","x","n1/a"],"holders":{"n1/a":{}}}`) },
		"no group": func() { put(t, srv, "slots/g", `[]`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := host(t, srv.Client())
			c := mustAcquire(t, s, "g", 1, durable("a"))
			next := waiting(t, t.Context(), s, "g", holder("b"))
			spoil()
			last := waiting(t, t.Context(), host(t, srv.Client()), "g", holder("c"))
			mustRelease(t, c)
			second := mustGet(t, next)
			if v := mustShow(t, s, "g"); len(v.Holders) != 1 || len(v.Queue) != 1 {
				t.Errorf("Show = %+v; want one holder and one waiter", v)
			}
			mustRelease(t, second)
			mustRelease(t, mustGet(t, last))
		})
	}
}

// remove deletes a key that is there.
func remove(t *testing.T, srv *consultest.Server, key string) {
	t.Helper()
	c, key := srv.Client(), "jorc/default/"+key
	p, _, err := c.KVGet(t.Context(), key, consul.Query{})
	if err != nil || p == nil {
		t.Fatalf("%s: %v, %v", key, p, err)
	}
	if ok, err := c.KVDeleteCAS(t.Context(), key, p.ModifyIndex); !ok || err != nil {
		t.Fatalf("%s is deleted: %v, %v", key, ok, err)
	}
}

func TestANewerDocument(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	put(t, srv, "slots/g", `{"format":99,"max":1}`)
	_, err := s.Acquire(t.Context(), "g", 1, holder("a"))
	wantIs(t, "Acquire", err, kv.ErrNewer)
	_, _, err = s.Show(t.Context(), "g")
	wantIs(t, "Show", err, kv.ErrNewer)
}

// TestDamagedKeys spoils what is known of a waiter: it lines up again, and the
// others go on.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, holder("a"))
	spoiled := waiting(t, t.Context(), s, "g", holder("b"))
	next := waiting(t, t.Context(), s, "g", holder("c"))
	put(t, srv, "slots/g/wait/n1/b", `what?`)
	until(t, s, "g", "b behind c", func(v slots.View) bool { return len(v.Queue) == 2 && v.Queue[1].ID == "b" })
	mustRelease(t, c)
	mustRelease(t, mustGet(t, next))
	mustRelease(t, mustGet(t, spoiled))
}

// TestRestoredKeys: a claim that keys restored from a backup tell of, and that no
// session holds any more, does not keep others out; a durable one does.
func TestRestoredKeys(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	dead := mustAcquire(t, s, "g", 2, holder("dead"))
	lasting := mustAcquire(t, s, "g", 2, durable("lasting"))
	ctx, cancel := context.WithCancel(t.Context())
	first, second := waiting(t, ctx, s, "g", holder("w1")), waiting(t, ctx, s, "g", holder("w2"))
	backup, _, err := srv.Client().KVList(t.Context(), "jorc/default/slots/", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, waiter := range []<-chan got{first, second} {
		wantIs(t, "Acquire", (<-waiter).err, context.Canceled)
	}
	mustRelease(t, dead)
	for _, p := range backup { // as "consul kv import" does
		if err := srv.Client().KVPut(t.Context(), &consul.KVPair{Key: p.Key, Flags: p.Flags, Value: p.Value}); err != nil {
			t.Fatal(err)
		}
	}
	v := mustShow(t, s, "g")
	if len(v.Holders) != 2 || v.Holders[0].ID != "dead" || !v.Holders[0].Gone || v.Holders[1].Gone {
		t.Errorf("Show = %+v; want that the first is gone", v)
	}
	c := mustAcquire(t, s, "g", slots.Keep, holder("b"))
	if v := mustShow(t, s, "g"); len(v.Holders) != 2 || v.Holders[0].ID != "lasting" || v.Holders[1].ID != "b" {
		t.Errorf("Show = %+v", v)
	}
	mustRelease(t, c)
	mustRelease(t, lasting)
}

func TestTheSameNameTwice(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", 2, holder("a"))
	_, err := host(t, srv.Client()).Acquire(t.Context(), "g", 2, holder("a"))
	wantIs(t, "Acquire", err, slots.ErrTaken)
	_, err = host(t, srv.Client()).Acquire(t.Context(), "g", 2, durable("a"))
	wantIs(t, "Acquire", err, slots.ErrTaken)
	if c.Context().Err() != nil {
		t.Error("the second took the slot from the first")
	}
	d := mustAcquire(t, s, "g", 2, durable("d"))
	again := mustAcquire(t, host(t, srv.Client()), "g", 2, durable("d"))
	if v := mustShow(t, s, "g"); len(v.Holders) != 2 {
		t.Errorf("Show = %+v; want two holders", v)
	}
	mustRelease(t, again)
	lost(t, d)
}
