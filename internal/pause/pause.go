// Package pause waits for time to pass, or for a context to end.
package pause

import (
	"context"
	"time"
)

// For returns nil after d, or ctx's error when it ends first.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
