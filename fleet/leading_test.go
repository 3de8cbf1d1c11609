//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestLeaderCutOff: a leader whose host is cut off steps down by itself,
// another leads, and at no moment do two.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	f := usual(t, "", "")
	healthy(t, f)
	old := leader(t, f)
	notes := func(h *fleettest.Host) int { return strings.Count(h.File("leading"), "\n") }
	before := notes(old)
	if before%2 != 1 {
		t.Fatalf("%s leads and has noted %q", old.Name, old.File("leading"))
	}
	t.Logf("%s is cut off", old.Name)
	f.CutOff(old.Machine)
	f.Eventually(old.Name+" to step down", func(context.Context) error {
		if notes(old) == before {
			return fmt.Errorf("it has noted %q", old.File("leading"))
		}
		return nil
	})
	f.Eventually("another to lead", func(context.Context) error {
		r := f.Jorc("cluster", "leader")
		if name := strings.TrimSpace(r.Stdout); name == old.Name || r.Code != 0 {
			return fmt.Errorf("%q leads: exit %d, %s", name, r.Code, r.Stderr)
		}
		return nil
	})
	leader(t, f)
	f.Heal()
	healthy(t, f)
	var all []fleettest.Hold
	for _, h := range f.Hosts {
		all = append(all, holds(t, h, "leading")...)
	}
	if len(all) < 2 {
		t.Errorf("%d hosts have led, want at least 2", len(all))
	}
	fleettest.CheckSemaphore(t, 1, all)
}

// leader is the host that leads, after it has noticed.
func leader(t *testing.T, f *fleettest.Fleet) *fleettest.Host {
	t.Helper()
	h := f.Host(strings.TrimSpace(f.Jorc("cluster", "leader").OK()))
	f.Eventually(h.Name+" to notice that it leads", func(context.Context) error {
		if all := holds(t, h, "leading"); len(all) == 0 || !all[len(all)-1].Released.IsZero() {
			return fmt.Errorf("it has noted %q", h.File("leading"))
		}
		return nil
	})
	return h
}
