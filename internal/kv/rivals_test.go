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
	// A calm Consul is not waited for longer than it could be of use, a busy one is.
	for took, widest := range map[time.Duration]time.Duration{
		time.Millisecond: longestPause, 10 * time.Millisecond: 640 * time.Millisecond, time.Second: widestWindow,
	} {
		r.window = widest - took
		for range 2 {
			if err := r.lost(ended, took); !errors.Is(err, context.Canceled) || r.window != widest {
				t.Errorf("attempts of %v: window %v, %v; want %v, and no pause when the context has ended", took, r.window, err, widest)
			}
		}
	}
}
