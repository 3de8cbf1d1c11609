package concurrency

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff gives growing pauses between attempts: about first, then twice as
// long each time up to about max, each with a random share of ±25 % so that many
// hosts do not retry in step. It is used by one goroutine at a time.
type Backoff struct {
	exponential *backoff.ExponentialBackOff
}

// jitter is the share by which a pause varies in either direction.
const jitter = 0.25

// NewBackoff returns a Backoff that begins with first.
func NewBackoff(first, max time.Duration) *Backoff {
	b := &Backoff{&backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: max, Multiplier: 2, RandomizationFactor: jitter,
	}}
	b.Reset()
	return b
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration { return b.exponential.NextBackOff() }

// Reset makes the next pause the first one again. Call it after a success.
func (b *Backoff) Reset() { b.exponential.Reset() }

// Wait sleeps for the next pause. It returns ctx's error when ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Delay returns the pause after the nth failure, from 1, for callers that keep the
// count themselves: first, then twice as long each time, up to most.
func Delay(first, most time.Duration, n int) time.Duration {
	for ; n > 1 && first < most; n-- {
		first *= 2
	}
	return min(first, most)
}

// Retry calls attempt until it succeeds or ctx ends, with b's pauses in between.
// failed, if not nil, is called with each error and the pause that follows. It
// returns ctx's error when ctx ends.
func Retry(ctx context.Context, b *Backoff, attempt func(context.Context) error, failed func(err error, pause time.Duration)) error {
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause := b.Next()
		if failed != nil {
			failed(err, pause)
		}
		if err := Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// Restart calls run again whenever it returns, with b's pauses in between, until
// ctx ends; then it returns nil. A run that lasted for longer than calm counts as
// a success: the pause after it is the first one again. ended, if not nil, is
// called with what run returned and the pause that follows.
func Restart(ctx context.Context, b *Backoff, calm time.Duration, run func(context.Context) error, ended func(err error, pause time.Duration)) error {
	for ctx.Err() == nil {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > calm {
			b.Reset()
		}
		pause := b.Next()
		if ended != nil {
			ended(err, pause)
		}
		_ = Sleep(ctx, pause) // the loop's condition reports the end of ctx
	}
	return nil
}
