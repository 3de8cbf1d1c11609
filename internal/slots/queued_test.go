package slots_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/slots"
)

// queued tells whether the key is there by which who comes or goes learns that
// somebody waits.
func queued(t *testing.T, srv *consultest.Server) bool {
	t.Helper()
	p, _, err := srv.Client().KVGet(t.Context(), "jorc/default/slots/g/queued", consul.Query{Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	return p != nil
}

// wantNobody wants that nobody holds a slot or waits, by the document and by the key.
func wantNobody(t *testing.T, srv *consultest.Server, s *slots.Slots) {
	t.Helper()
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 || queued(t, srv) {
		t.Errorf("Show = %+v, the key is there: %v; want nobody and no key", v, queued(t, srv))
	}
}

// TestQueued: the key is there while somebody waits, however the queue comes
// and goes.
func TestQueued(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	want := func(when string, want bool) {
		t.Helper() // a patient claim that is shown to wait may not have come in yet
		consultest.Eventually(t, fmt.Sprintf("the key to be there: %v; %s", want, when), func(context.Context) error {
			if queued(t, srv) != want {
				return errors.New("not so")
			}
			return nil
		})
	}
	a := mustAcquire(t, s, "g", 1, durable("a"))
	want("one holds a slot", false)
	ctx, cancel := context.WithCancel(t.Context())
	b := waiting(t, ctx, s, "g", patient("b"))
	want("one waits", true)
	cancel()
	wantIs(t, "Acquire", (<-b).err, context.Canceled)
	want("it gave up", false)
	b = waiting(t, t.Context(), s, "g", holder("b"))
	c := waiting(t, t.Context(), s, "g", patient("c"))
	want("two wait", true)
	mustRelease(t, a)
	claim := mustGet(t, b)
	want("one was let in", true)
	mustRelease(t, claim)
	claim = mustGet(t, c)
	want("so was the other", false)
	d := waiting(t, t.Context(), s, "g", durable("d"))
	put(t, srv, "slots/g", "nonsense")
	remove(t, srv, "slots/g/queued")
	if err := s.Resize(t.Context(), "g", 1); err != nil {
		t.Fatal(err)
	}
	want("the document was made again", true)
	if _, err := s.Unlock(t.Context(), "g", "n1", "d"); err != nil {
		t.Fatal(err)
	}
	<-d
	want("who waited was taken out", false)
	mustRelease(t, claim)
}

// TestQueuedIsMissing: without the key, deleted by hand, who comes looks at the
// document, and who goes hands his slot on.
func TestQueuedIsMissing(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	a := mustAcquire(t, s, "g", 1, durable("a"))
	b := waiting(t, t.Context(), s, "g", durable("b"))
	remove(t, srv, "slots/g/queued")
	c := waiting(t, t.Context(), steady(t, srv.Client()), "g", patient("c"))
	mustRelease(t, a)
	claim := mustGet(t, b)
	if err := s.Release(t.Context(), "g", "n1", claim.ID()); err != nil {
		t.Errorf("Release by name = %v", err)
	}
	mustRelease(t, mustGet(t, c))
	wantNobody(t, srv, s)
}

// TestQueuedIsStale: a key that somebody made by hand misleads who comes and who
// goes, until somebody looks at the group.
func TestQueuedIsStale(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	mustAcquire(t, s, "g", 1, durable("a"))
	put(t, srv, "slots/g/queued", "")
	if err := s.Release(t.Context(), "g", "n1", "a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} { // the one that the document has as its holder, and another
		put(t, srv, "slots/g/queued", "")
		w := waiting(t, t.Context(), s, "g", patient(id))
		if err := s.Resize(t.Context(), "g", 1); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, mustGet(t, w))
	}
	mustRelease(t, mustAcquire(t, s, "g", 1, patient("c")))
	wantNobody(t, srv, s)
}

// TestDeadOfTheSameName: a patient claim whose name the document still has as a
// holder that is dead gets its slot, with nobody else there to look at the group.
func TestDeadOfTheSameName(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	put(t, srv, "slots/g", `{"format":1,"max":1,"queue":[],"holders":{"n1/a":{"since":"2026-01-01T00:00:00Z"}}}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := s.Acquire(ctx, "g", slots.Keep, patient("a"))
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, c)
	wantNobody(t, srv, s)
}

// TestComesBackAtOnce: a holder that gives its slot back while somebody waits, and
// comes again before that one has looked, is not forgotten.
func TestComesBackAtOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := steady(t, srv.Client())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 30 {
		h := patient("h")
		c, err := s.Acquire(ctx, "g", 1, h)
		if err != nil {
			t.Fatal(err)
		}
		x := waiting(t, ctx, s, "g", patient(fmt.Sprint("x", i)))
		back := make(chan got, 1)
		go func() {
			if err := s.Release(ctx, "g", "n1", "h"); err != nil {
				t.Errorf("Release = %v", err)
			}
			c, err := s.Acquire(ctx, "g", slots.Keep, h)
			back <- got{c, err}
		}()
		first := <-x
		if first.err != nil {
			t.Fatal(first.err)
		}
		mustRelease(t, first.claim)
		again := <-back
		if again.err != nil {
			t.Fatal(again.err)
		}
		mustRelease(t, again.claim)
		_ = c.Detach(ctx) // the process that had it is gone
	}
}
