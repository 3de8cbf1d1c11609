//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestOrchestratorLost: the orchestrator's host is cut off, and later its agent
// stands still and wakes up again, in the middle of a rollout. Another takes
// over; what is journalled has no gap and nothing twice.
func TestOrchestratorLost(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	for _, way := range []struct {
		version    string
		lose, back func(*fleettest.Host)
	}{
		{"v2-gate", func(h *fleettest.Host) { f.CutOff(h.Machine) }, func(*fleettest.Host) { f.Heal() }},
		{"v3-gate", (*fleettest.Host).FreezeAgent, (*fleettest.Host).ThawAgent},
		{"v4-gate", (*fleettest.Host).Kill9All, (*fleettest.Host).Boot},
	} {
		shut(f.Hosts...)
		f.Jorc("update", "trigger", way.version, "--max-parallel", "1").OK()
		at := holder(f, way.version)
		old := orchestrator(t, f)
		lost := time.Now()
		way.lose(old)
		t.Logf("%s, the orchestrator, is lost while %s holds the slot", old.Name, at.Name)
		f.Eventually("another to orchestrate", func(context.Context) error {
			if now := orchestrator(t, f); now == old {
				return fmt.Errorf("%s still does", now.Name)
			}
			return nil
		})
		t.Logf("%s orchestrates after %v", orchestrator(t, f).Name, time.Since(lost).Round(time.Millisecond))
		open(f.Hosts...)
		way.back(old)
		waitExit(t, f, 0)
		allAt(f, way.version)
		healthy(t, f)
	}
	journal(t, f)
}
