//go:build fleet || soak

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	return membersOf(t, f.Jorc(append([]string{"cluster", "members", "-o", "json"}, args...)...).OK())
}

func membersOf(t testing.TB, out string) []member {
	t.Helper()
	var all []member
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("cluster members printed %s: %v", out, err)
	}
	return all
}

// healthy waits until all members are up and pass their checks.
func healthy(t testing.TB, f *fleettest.Fleet) {
	t.Helper()
	f.Eventually("all members to be healthy", func(context.Context) error {
		r := f.Jorc("cluster", "members", "-o", "json")
		if r.Code != 0 { // Consul may have no leader for a moment
			return fmt.Errorf("cluster members: exit %d, %s", r.Code, r.Stderr)
		}
		all := membersOf(t, r.Stdout)
		bad := slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.Health == "passing" && m.Agent == "up" })
		if len(all) != len(f.Hosts) || len(bad) > 0 {
			return fmt.Errorf("%d members, not healthy: %+v", len(all), bad)
		}
		return nil
	})
}

// journal checks that the numbers of the events have no gap and none twice.
func journal(t *testing.T, f *fleettest.Fleet) {
	t.Helper()
	var events []struct {
		Seq  uint64 `json:"seq"`
		Kind string `json:"kind"`
	}
	out := f.Jorc("cluster", "events", "--limit", "100000", "-o", "json").OK()
	if err := json.Unmarshal([]byte(out), &events); err != nil {
		t.Fatalf("cluster events printed %.300s: %v", out, err)
	}
	for i := range events {
		if want := events[0].Seq + uint64(i); events[i].Seq != want {
			t.Errorf("event %d of %d is number %d, want %d: %+v", i, len(events), events[i].Seq, want, events[i])
		}
	}
	if len(events) == 0 {
		t.Error("nothing was journalled")
	}
}
