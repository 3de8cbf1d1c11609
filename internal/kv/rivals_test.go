package kv

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestRivals: the window follows how many of the attempts are lost, and nothing
// is left of it when none is.
func TestRivals(t *testing.T) {
	t.Parallel()
	const took = time.Millisecond
	var r rivals
	r.won(took)
	if !r.none() {
		t.Errorf("a window of %v without a conflict", r.window)
	}
	for want := took; want <= 8*took; want *= 2 {
		if err := r.lost(t.Context(), took); err != nil || r.window != want {
			t.Errorf("window %v, %v; want %v", r.window, err, want)
		}
	}
	if r.won(took); r.window != 6*took {
		t.Errorf("window %v after a success; want %v", r.window, 6*took)
	}
	for range 10 {
		r.won(took)
	}
	if !r.none() {
		t.Errorf("a window of %v after many successes", r.window)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	r.window = widestWindow - took
	if err := r.lost(ended, took); !errors.Is(err, context.Canceled) || r.window != widestWindow {
		t.Errorf("window %v, %v; want %v, and no pause when the context has ended", r.window, err, widestWindow)
	}
}
