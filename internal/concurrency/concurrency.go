// Package concurrency holds what every package needs to wait, to wake and to
// retry: a pause that ends with its context, a wake-up signal, a latest value
// that others watch, and exponential back-off.
package concurrency

import (
	"context"
	"io"
	"time"
)

// Sleep returns nil after d, or ctx's error when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error { return SleepUnless(ctx, nil, d) }

// SleepUnless returns nil after d or as soon as wake receives or is closed, or
// ctx's error when ctx ends first.
func SleepUnless(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-t.C:
	}
	return nil
}

// Reader returns a reader of r that fails with ctx's error once ctx has ended.
func Reader(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// Signal wakes one waiter. Several calls of Notify before the waiter receives
// are one wake-up. Make one with NewSignal; copies share the wake-up.
type Signal struct{ c chan struct{} }

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return Signal{make(chan struct{}, 1)} }

// Notify sets the signal. It never blocks.
func (s Signal) Notify() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// C returns the channel that receives when the signal is set; receiving clears it.
func (s Signal) C() <-chan struct{} { return s.c }

// Wait returns nil when the signal is set, and clears it, or ctx's error when
// ctx ends first.
func (s Signal) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.c:
		return nil
	}
}

// WaitUntil is Wait that also ends just after a time, unless that is zero: it returns context.DeadlineExceeded then.
func (s Signal) WaitUntil(ctx context.Context, at time.Time) error {
	if !at.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, at.Add(time.Millisecond))
		defer cancel()
	}
	return s.Wait(ctx)
}
