package kv

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// longestPause bounds what one pause between two questions can grow to.
const longestPause = 250 * time.Millisecond

// Bounds of the window of pauses between two attempts to write one key. A
// thousand hosts may want to at one moment, and a busy Consul takes a hundred
// changes of one key a second: with a window below the time that all of them
// take together most attempts fail, and the more fail the longer it takes.
//
// How busy it is shows in how long an attempt takes: beyond longestPause the
// window is at most so many times as long. Without that those who lose a few
// times in a row would sleep for seconds while a calm Consul has nothing to do.
const (
	widestWindow  = 8 * time.Second
	attemptsInOne = 64
)

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
	widest := min(max(longestPause, attemptsInOne*took), widestWindow)
	r.window = min(max(2*r.window, took), widest)
	return concurrency.Sleep(ctx, rand.N(r.window+1))
}

// won tells of a success.
func (r *rivals) won(took time.Duration) {
	if r.window -= r.window / 4; r.window < took {
		r.window = 0
	}
}
