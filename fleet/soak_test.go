//go:build soak

package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// soakFor is how long faults are made.
const soakFor = 30 * time.Minute

// TestFleetSoak: one rollout after the other, each with faults at random. All
// end, and the observer's invariants hold all the time.
func TestFleetSoak(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f := rolling(t)
	f.Observer.Always("few have a grant", fleettest.FewGranted(2))
	f.Observer.AlwaysChecks("few are in maintenance", fleettest.FewInMaintenance(2))
	open(f.Hosts...)
	faults := []struct {
		name       string
		make, mend func(*fleettest.Host)
	}{
		{"cut off", func(h *fleettest.Host) { f.CutOff(h.Machine) }, func(*fleettest.Host) { f.Heal() }},
		{"dead", (*fleettest.Host).Kill9All, (*fleettest.Host).Boot},
		{"frozen agent", (*fleettest.Host).FreezeAgent, (*fleettest.Host).ThawAgent},
		{"loss", func(h *fleettest.Host) { h.Loss(20) }, func(h *fleettest.Host) { h.Loss(0) }},
		{"slow", func(h *fleettest.Host) { h.Slow("256kbit") }, func(h *fleettest.Host) { h.Slow("") }},
		{"late", func(h *fleettest.Host) { h.Delay(200 * time.Millisecond) }, func(h *fleettest.Host) { h.Delay(0) }},
	}
	rounds := 0
	for end := time.Now().Add(soakFor); time.Now().Before(end); rounds++ {
		version := fmt.Sprintf("s%d-gate", rounds)
		fault, host := faults[random.IntN(len(faults))], f.Hosts[random.IntN(len(f.Hosts))]
		consul := random.IntN(2) == 0
		t.Logf("%s: %s is %s; Consul's leader killed: %v", version, host.Name, fault.name, consul)
		shut(f.Hosts...)
		f.Jorc("update", "trigger", version, "--max-parallel", fmt.Sprint(1+random.IntN(2)), "--max-failures", "5").OK()
		holder(f, version)
		old := f.Leader()
		fault.make(host)
		if consul {
			old.Kill()
		}
		open(f.Hosts...)
		f.WaitWritable()
		fault.mend(host)
		if consul {
			old.Start()
		}
		waitExit(t, f, 0)
		allAt(f, version)
		healthy(t, f)
	}
	journal(t, f)
	t.Logf("%d rollouts", rounds)
}
