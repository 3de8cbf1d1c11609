//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestHeldAndDrained: a host that is held and one that is drained get neither a version nor new
// content of a stage, and nothing is validated on them, while the others get both in steps; they
// follow when that ends.
func TestHeldAndDrained(t *testing.T) {
	t.Parallel()
	f := staged(t, 5, `max_parallel = "2"
    canary       = 1`, `
static {
  workflow            = "converge"
  validation          = "validate"
  validation_interval = "1s"
}
workflow "converge" {
  task "switch" { script = "echo {{quote .Version}} >> $DIR/converged" }
}
workflow "validate" {
  task "look" { script = "echo {{quote .Version}} >> $DIR/validated" }
}
`)
	f.Jorc("update", "trigger", "v1").OK()
	allAt(f, "v1")
	held, drained := f.Hosts[3], f.Hosts[4]
	f.Jorc("cluster", "hold", "--node", held.Name, "--reason", "new disk").OK()
	drained.Maintenance(true)
	f.Eventually(drained.Name+" to know that it is drained", func(context.Context) error {
		return containsAll(drained.Jorc("status").Stdout, "drained: it is in maintenance that jorc did not begin")
	})
	var free atomic.Bool
	aside := func(h *fleettest.Host) bool { return h == held || h == drained }
	f.Observer.Always("a host that is held or drained stays as it is", func(k fleettest.Keys) error {
		for _, h := range []*fleettest.Host{held, drained} {
			if !free.Load() && (slices.Contains(k.Granted(), h.Name) || versionOf(k, h.Name) == "v2") {
				return fmt.Errorf("%s has a grant or runs %s", h.Name, versionOf(k, h.Name))
			}
		}
		return nil
	})
	f.Jorc("update", "trigger", "v2", "--canary", "1", "--batches", "50%,100%", "--max-parallel", "2", "--min-healthy", "1s").OK()
	putLimit(f, "second")
	validated := drained.File("validated")
	have := func(wanted func(*fleettest.Host) bool) func(context.Context) error {
		return func(context.Context) error {
			k := f.Observer.Keys()
			for _, h := range f.Hosts {
				if v, file := versionOf(k, h.Name), strings.TrimSpace(h.File("limit")); wanted(h) && (v != "v2" || file != "second") {
					return fmt.Errorf("%s has %s and %q", h.Name, v, file)
				}
			}
			return nil
		}
	}
	f.Eventually("the others to have both", have(func(h *fleettest.Host) bool { return !aside(h) }))
	f.Eventually("the rollout to end", func(context.Context) error {
		return containsAll(f.Jorc("cluster", "events", "--kind", "change_done").OK(), "3 of 5 members run v2", "2 are held or drained and follow when that ends")
	})
	if err := containsAll(f.Jorc("update", "show").OK(), held.Name+": it is held: ", "new disk", drained.Name+": it is in maintenance that jorc did not begin"); err != nil {
		t.Error(err)
	}
	if err := containsAll(f.Jorc("stage", "show", "limit").OK(), "it is held: ", "it is in maintenance that jorc did not begin"); err != nil {
		t.Error(err)
	}
	for _, h := range []*fleettest.Host{held, drained} {
		if got := h.File("converged") + h.File("limit"); got != "v1\nfirst\n" {
			t.Errorf("%s has %q", h.Name, got)
		}
	}
	if got := drained.File("validated"); got != validated {
		t.Errorf("%s validated while it was drained: %q, before %q", drained.Name, got, validated)
	}
	free.Store(true)
	f.Jorc("cluster", "unhold", "--node", held.Name).OK()
	drained.Maintenance(false)
	f.Eventually("all hosts to have both", have(func(*fleettest.Host) bool { return true }))
	allAt(f, "v2")
}

// containsAll returns an error unless text has all parts.
func containsAll(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("%q is missing in %q", part, text)
		}
	}
	return nil
}
