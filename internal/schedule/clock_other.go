//go:build !linux

package schedule

import (
	"context"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// lookEvery bounds how long it takes to notice that the clock was set, where the
// system does not say so.
const lookEvery = time.Minute

// Wait implements Clock.
func (SystemClock) Wait(ctx context.Context, t time.Time) error {
	return concurrency.Sleep(ctx, min(lookEvery, time.Until(t.Round(0))))
}
