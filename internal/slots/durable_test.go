package slots_test

import (
	"errors"
	"testing"

	"github.com/jorc/jorc/internal/slots"
)

// TestDetach: a durable claim that is let go of is held all the same, taken up
// again by its name, and given back by hand.
func TestDetach(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	s := host(t, srv.Client())
	c := mustAcquire(t, s, "g", 1, durable("a"))
	if err := c.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Context().Err() == nil || c.Err() != nil {
		t.Errorf("got %v, %v, want that the context has ended and nothing is lost", c.Context().Err(), c.Err())
	}
	h, held, err := s.Held(t.Context(), "g", "n1", "a")
	if err != nil || !held || h.Since.IsZero() || h.Reason != durable("a").Reason {
		t.Errorf("got %+v, %t, %v", h, held, err)
	}
	again := mustAcquire(t, s, "g", slots.Keep, durable("a"))
	if err := again.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Unlock(t.Context(), "g", "n1", "a"); err != nil || len(out) != 1 {
		t.Errorf("got %v, %v", out, err)
	}
	if _, held, err := s.Held(t.Context(), "g", "n1", "a"); held || err != nil {
		t.Errorf("got %t, %v", held, err)
	}
	if _, _, err := s.Held(t.Context(), "g", "n1", ""); !errors.Is(err, slots.ErrName) {
		t.Errorf("got %v", err)
	}
}
