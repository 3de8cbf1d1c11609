package kv

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jorc/jorc/internal/pause"
)

// longestPause bounds what one pause between two attempts can grow to.
const longestPause = 250 * time.Millisecond

// rivals is what the attempts to write one key have told of its other writers.
// A failed compare-and-swap costs the servers as much as one that succeeds, so
// the pauses after them are drawn from a window that doubles with each conflict
// and loses a quarter with each success. It settles where two attempts of
// three succeed, however many writers there are, and is remembered from one
// update to the next. The smallest window is the time that an attempt takes,
// which tells how busy Consul is.
type rivals struct{ window time.Duration }

// none tells that nothing is known of any.
func (r *rivals) none() bool { return r.window == 0 }

// lost returns after the pause that a conflict asks for, or with the context's
// error when it ends first. took is how long the attempt was.
func (r *rivals) lost(ctx context.Context, took time.Duration) error {
	r.window = min(max(2*r.window, took), longestPause)
	return pause.For(ctx, rand.N(r.window+1))
}

// won tells of a success.
func (r *rivals) won(took time.Duration) {
	if r.window -= r.window / 4; r.window < took {
		r.window = 0
	}
}
