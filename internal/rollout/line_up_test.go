package rollout

import (
	"testing"
	"time"
)

// TestLineUpWithin: few line up at once, many so that Consul keeps up, and
// nobody waits for ever.
func TestLineUpWithin(t *testing.T) {
	t.Parallel()
	for members, want := range map[int]time.Duration{
		0: 0, 10: 50 * time.Millisecond, 1000: 5 * time.Second, 1_000_000: time.Minute,
	} {
		if got := lineUpWithin(members); got != want {
			t.Errorf("%d members line up within %v, want %v", members, got, want)
		}
	}
}
