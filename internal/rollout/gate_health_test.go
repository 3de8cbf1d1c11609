package rollout_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/rollout"
)

// TestGateHealthyForSoLong: a node keeps its slot as long as its checks have not
// passed for as long as the policy asks, however often they do in between.
func TestGateHealthyForSoLong(t *testing.T) {
	t.Parallel()
	f := newFleet(t, consultest.Start(t), "healthy", "n1")
	f.trigger("v1", 1, rollout.Policy{MaxParallel: rollout.Amount{N: 1}, MinHealthy: rollout.Duration(time.Hour)}, nil)
	h := f.host("n1")
	h.enter("v1").wantIn(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- h.Leave(ctx, "v1") }()
	for range 50 {
		for _, failing := range [][]string{nil, {"web: critical"}} {
			select {
			case h.checks.news <- failing:
			case err := <-left:
				t.Fatalf("the slot was given back at once: %v", err)
			}
		}
	}
	f.wantHolders("n1")
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("Leave: %v, want that it ends with its context", err)
	}
	f.wantHolders("n1")
}
