//go:build fleet

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// member is a line of `cluster members -o json`.
type member struct {
	Node   string   `json:"node"`
	Roles  []string `json:"roles"`
	Health string   `json:"health"`
	Agent  string   `json:"agent"`
}

func members(t *testing.T, f *fleettest.Fleet, args ...string) []member {
	t.Helper()
	var all []member
	out := f.Jorc(append([]string{"cluster", "members", "-o", "json"}, args...)...).OK()
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("cluster members printed %s: %v", out, err)
	}
	return all
}

// healthy waits until all members are up and pass their checks.
func healthy(t *testing.T, f *fleettest.Fleet) {
	t.Helper()
	f.Eventually("all members to be healthy", func(context.Context) error {
		all := members(t, f)
		bad := slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.Health == "passing" && m.Agent == "up" })
		if len(all) != len(f.Hosts) || len(bad) > 0 {
			return fmt.Errorf("%d members, not healthy: %+v", len(all), bad)
		}
		return nil
	})
}

// TestFleetComesUp: hosts that know nothing but their own configuration become
// a cluster with leaders, and each has its files.
func TestFleetComesUp(t *testing.T) {
	t.Parallel()
	f := usual(t, "", "")
	healthy(t, f)
	if got := strings.Fields(f.Jorc("cluster", "leader").OK()); len(got) != 1 {
		t.Errorf("leaders %q, want one", got)
	}
	if got := f.Jorc("cluster", "members", "--count", "--filter", `"web" in Roles`).OK(); got != "3\n" {
		t.Errorf("members with role web: %q", got)
	}
	f.Jorc("doctor").OK()
	for _, h := range f.Hosts {
		waitFile(f, h, "value first\nweb web-1 web-2 web-3\n")
		h.Jorc("doctor").OK()
	}
	load := f.Load(front)
	for _, h := range webs(f) {
		load.WaitServed(h.Name)
	}
	load.Stop(10)
}

func waitFile(f *fleettest.Fleet, h *fleettest.Host, want string) {
	f.Eventually(h.Name+"'s file to be "+fmt.Sprintf("%q", want), func(context.Context) error {
		if got := h.File("file"); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}
