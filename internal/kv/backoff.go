package kv

import (
	"context"
	"math/rand/v2"
	"time"
)

// longestPause bounds what one pause between two attempts can grow to.
const longestPause = 250 * time.Millisecond

// backoff spreads those who want to write one key. A failed compare-and-swap
// costs the servers as much as one that succeeds, so the pauses are chosen
// from a window that doubles with each conflict; its unit is the time that an
// attempt takes, which tells how busy Consul is.
type backoff struct{ window time.Duration }

// wait returns after a pause, or with the context's error when it ends first.
// unit is the first window.
func (b *backoff) wait(ctx context.Context, unit time.Duration) error {
	b.window = min(max(2*b.window, unit), longestPause)
	return sleep(ctx, rand.N(b.window+1))
}

// sleep returns nil after d, or the context's error when it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
