//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestConsulLeaderKilledInEachPhase: a rollout goes through its phases while
// Consul's leader is killed in each of them.
func TestConsulLeaderKilledInEachPhase(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	const version = "v2-gate"
	f.Jorc("update", "trigger", version, "--canary", "1", "--batches", "2,100%", "--max-parallel", "1").OK()
	losing := func(phase string, meanwhile func()) {
		t.Helper()
		old := f.Leader()
		t.Logf("%s: %s is killed", phase, old.Name)
		old.Kill()
		meanwhile()
		old.Start()
	}
	var canary *fleettest.Host
	losing("trigger", func() { canary = holder(f, version) })
	losing("canary", func() {
		open(canary)
		runs(f, canary, version)
	})
	losing("promote", func() {
		f.Eventually("the canary to be promoted", func(context.Context) error {
			if r := f.Jorc("update", "promote"); r.Code != 0 {
				return fmt.Errorf("exit %d: %s", r.Code, r.Stderr)
			}
			return nil
		})
	})
	second := holder(f, version)
	losing("batch", func() {
		open(second)
		runs(f, second, version)
	})
	third := holder(f, version)
	losing("last batch", func() {
		open(third)
		runs(f, third, version)
	})
	open(f.Hosts...)
	waitExit(t, f, 0)
	allAt(f, version)
}

// runs waits until a host runs a version.
func runs(f *fleettest.Fleet, h *fleettest.Host, version string) {
	f.Eventually(h.Name+" to run "+version, func(context.Context) error {
		if v := versionOf(f.Observer.Keys(), h.Name); v != version {
			return fmt.Errorf("it runs %s", v)
		}
		return nil
	})
}

// TestBadNetwork: a rollout over links that lose packets, are slow, and late.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	for _, h := range f.Hosts {
		h.Loss(5)
	}
	f.Host("web-1").Slow("512kbit")
	f.Host("db-1").Delay(150 * time.Millisecond)
	f.Host("edge-1").Delay(50 * time.Millisecond)
	f.Jorc("update", "trigger", "v2", "--max-parallel", "1").OK()
	waitExit(t, f, 0)
	allAt(f, "v2")
	for _, h := range f.Hosts {
		h.Loss(0)
	}
	f.Host("web-1").Slow("")
	f.Host("db-1").Delay(0)
	f.Host("edge-1").Delay(0)
	f.Jorc("update", "trigger", "v3", "--max-parallel", "1").OK()
	waitExit(t, f, 0)
	allAt(f, "v3")
	healthy(t, f)
}
