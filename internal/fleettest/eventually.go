//go:build linux

package fleettest

import (
	"context"
	"time"
)

// patience bounds every wait for a condition.
const patience = 2 * time.Minute

// Eventually calls check until it returns nil; the test fails when it does not
// within two minutes.
func (f *Fleet) Eventually(what string, check func(context.Context) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if broken := f.broken(); broken != nil {
			f.t.Fatalf("waiting for %s (%v): %v", what, err, broken)
		}
		select {
		case <-ctx.Done():
			f.t.Fatalf("waited %v for %s: %v", patience, what, err)
		case <-tick.C:
		}
	}
}
