package schedule

import (
	"context"
	"time"
)

// Clock is the time of the day.
type Clock interface {
	Now() time.Time
	// Wait returns nil once the time is t or later, or earlier if the clock was
	// set: ask Now. It returns ctx's error when ctx ends first.
	Wait(ctx context.Context, t time.Time) error
}

// SystemClock is the host's clock.
type SystemClock struct{}

// Now implements Clock. It has no monotonic part, which stands still while a host
// sleeps.
func (SystemClock) Now() time.Time { return time.Now().Round(0) }
