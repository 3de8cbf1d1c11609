//go:build fleet

package fleet_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestZonesAndRoles: one zone is finished before the next begins, one role
// before the next, and one with a limit of 0 stays where it is.
func TestZonesAndRoles(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 2)
	t.Run("zones", func(t *testing.T) { oneZoneAtATime(t, f) })
	t.Run("roles", func(t *testing.T) { rolesInOrder(t, f) })
}

func oneZoneAtATime(t *testing.T, f *fleettest.Fleet) {
	const version = "v2-gate"
	first, second := []string{"db-1", "web-1", "web-3"}, []string{"edge-1", "web-2"}
	f.Observer.Always("zone a before zone b", inTurn(version, first, second))
	f.Jorc("update", "trigger", version, "--zone-by-zone", "--max-parallel", "2").OK()
	two := atGate(f, version, 2)
	orchestrated(f)
	for _, name := range begun(f, version) {
		if !slices.Contains(first, name) {
			t.Errorf("%s has begun, and only %s and %s of zone a are at work", name, two[0].Name, two[1].Name)
		}
	}
	wantWhy(t, f, "web-2", "not admitted yet")
	for _, name := range first {
		open(f.Host(name))
	}
	for _, name := range first {
		runs(f, f.Host(name), version)
	}
	two = atGate(f, version, 2)
	if got := names(two); !slices.Equal(got, second) {
		t.Errorf("%v are at work, want zone b: %v", got, second)
	}
	open(f.Hosts...)
	waitExit(t, f, 0)
	allAt(f, version)
	shut(f.Hosts...)
}

func rolesInOrder(t *testing.T, f *fleettest.Fleet) {
	const version = "v3-gate"
	first, second := []string{"edge-1"}, names(webs(f))
	f.Observer.Always("role edge before role web", inTurn(version, first, second))
	f.Observer.Always("one web at a time", func(k fleettest.Keys) error {
		holders := slices.DeleteFunc(k.Granted(), func(node string) bool { return !slices.Contains(second, node) })
		if k["current_version"].Value == version && len(holders) > 1 {
			return fmt.Errorf("%v have grants", holders)
		}
		return nil
	})
	before := versionOf(f.Observer.Keys(), "db-1")
	f.Jorc("update", "trigger", version, "--order", "edge,web=1,db=0", "--max-parallel", "2").OK()
	if h := holder(f, version); h.Name != "edge-1" {
		t.Errorf("%s began first, want edge-1", h.Name)
	}
	orchestrated(f)
	if got := begun(f, version); !slices.Equal(got, first) {
		t.Errorf("%v have begun, want %v only", got, first)
	}
	open(f.Hosts...)
	waitExit(t, f, 0)
	for _, h := range f.Hosts {
		want := version
		if h.Name == "db-1" {
			want = before
		}
		if got := h.Jorc("update", "local").OK(); got != want+"\n" {
			t.Errorf("%s runs %q, want %q", h.Name, got, want)
		}
	}
	if got := begun(f, version); slices.Contains(got, "db-1") {
		t.Errorf("%v have begun, and db-1 is kept back", got)
	}
	if s := show(t, f); s.State != "done" || s.Now.Members != 4 || s.Now.Done != 4 {
		t.Errorf("the rollout is %+v", s)
	}
	wantWhy(t, f, "db-1", `keeps back role "db"`)

	f.Jorc("update", "trigger", version, "--order", "edge,web=1,db").OK()
	allAt(f, version)
}

// inTurn is the invariant that those of a later stage have no grant, and
// do not run version, before all of the earlier ones run it and have none.
func inTurn(version string, stages ...[]string) func(fleettest.Keys) error {
	return func(k fleettest.Keys) error {
		if k["current_version"].Value != version {
			return nil
		}
		holders := k.Granted()
		behind := ""
		for _, stage := range stages {
			for _, node := range stage {
				if holds := slices.Contains(holders, node); behind != "" && (holds || versionOf(k, node) == version) {
					return fmt.Errorf("%s is at %s, has a grant: %v; before it %s has to be finished", node, versionOf(k, node), holds, behind)
				}
			}
			for _, node := range stage {
				if versionOf(k, node) != version || slices.Contains(holders, node) {
					behind = node
				}
			}
		}
		return nil
	}
}

// oneRollout is the invariant that the rollout is of the version that is desired.
func oneRollout(k fleettest.Keys) error {
	var doc struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal([]byte(k["current/version"].Value), &doc); err != nil {
		return fmt.Errorf("key rollout: %w", err)
	}
	if desired := k["current_version"].Value; desired != doc.Version {
		return fmt.Errorf("%q is desired, the rollout is of %q", desired, doc.Version)
	}
	return nil
}

// orchestrated lets the orchestrator look a few times.
func orchestrated(f *fleettest.Fleet) {
	for range 3 {
		f.Jorc("cluster", "orchestrate").OK()
	}
}

// wantWhy wants a host's reason for being where it is to name something.
func wantWhy(t *testing.T, f *fleettest.Fleet, host, want string) {
	t.Helper()
	if got := f.Jorc("update", "why", host).Stdout; !strings.Contains(got, want) {
		t.Errorf("why %s prints %q, want something with %q", host, got, want)
	}
}

func names(hosts []*fleettest.Host) []string {
	var all []string
	for _, h := range hosts {
		all = append(all, h.Name)
	}
	slices.Sort(all)
	return all
}
