//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestDeadlines: a host that takes too long counts as failed, and a rollout in
// which no host arrives is paused. A host that failed keeps its grant until an
// operator gives up on it.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	t.Run("of a node", func(t *testing.T) { nodeDeadline(t, f) })
	t.Run("of progress", func(t *testing.T) { progressDeadline(t, f) })
	t.Run("unlock", func(t *testing.T) { unlock(t, f) })
}

func nodeDeadline(t *testing.T, f *fleettest.Fleet) {
	const version = "v2-gate"
	f.Jorc("update", "trigger", version, "--max-parallel", "1", "--node-deadline", "3s").OK()
	slow := holder(f, version)
	waitExit(t, f, 6)
	s := show(t, f)
	if s.State != "paused" || len(s.Failed) != 1 || len(s.Grants) != 1 {
		t.Fatalf("after the deadline the rollout is %+v", s)
	}
	if got := s.Failed[0]; got.Node != slow.Name || !got.Granted || !strings.Contains(got.Reason, "longer than 3s") || !got.Since.Equal(s.Grants[0].Since) {
		t.Errorf("%+v failed, want %s, since it has its grant: %+v", got, slow.Name, s.Grants[0])
	}
	onlyOne(t, f, version, slow)
	goOn(t, f, version, slow, "--node-deadline", "10m")
}

func progressDeadline(t *testing.T, f *fleettest.Fleet) {
	const version = "v3-gate"
	f.Jorc("update", "trigger", version, "--max-parallel", "1", "--progress-deadline", "8s").OK()
	slow := holder(f, version)
	waitExit(t, f, 6)
	s := show(t, f)
	if s.State != "paused" || len(s.Failed) > 0 || s.Stopped == nil {
		t.Fatalf("after the deadline the rollout is %+v", s)
	}
	if got := s.Stopped.Reason; !strings.Contains(got, "no member arrived for longer than 8s") || !strings.Contains(got, slow.Name) {
		t.Errorf("it is paused for %q, want %s to be named", got, slow.Name)
	}
	onlyOne(t, f, version, slow)
	goOn(t, f, version, slow, "--progress-deadline", "10m")
}

// onlyOne looks a few times whether anybody else has begun.
func onlyOne(t *testing.T, f *fleettest.Fleet, version string, one *fleettest.Host) {
	t.Helper()
	orchestrated(f)
	if got := begun(f, version); !slices.Equal(got, []string{one.Name}) {
		t.Errorf("%v have begun with %s, want %s only", got, version, one.Name)
	}
}

// goOn lets a host that was too slow end, and the rollout continue with a longer
// deadline.
func goOn(t *testing.T, f *fleettest.Fleet, version string, slow *fleettest.Host, deadline ...string) {
	t.Helper()
	open(slow)
	runs(f, slow, version)
	onlyOne(t, f, version, slow)
	f.Jorc(append([]string{"update", "trigger", version}, deadline...)...).OK()
	f.Jorc("update", "resume").OK()
	open(f.Hosts...)
	waitExit(t, f, 0)
	allAt(f, version)
	shut(f.Hosts...)
}

// unlock: the only place is taken by a host that failed, though one may. No other
// begins until an operator gives up on it.
func unlock(t *testing.T, f *fleettest.Fleet) {
	bad := f.Host("web-2")
	version := turn(f, bad.Name, 0, "-bad-web-2")
	f.Jorc("update", "trigger", version, "--batches", "1,100%", "--max-parallel", "1", "--max-failures", "1", "--min-healthy", "1s").OK()
	f.Eventually(bad.Name+" to fail", func(context.Context) error {
		if s := show(t, f); len(s.Failed) != 1 || s.State == "paused" {
			return fmt.Errorf("the rollout is %+v", s)
		}
		return nil
	})
	onlyOne(t, f, version, bad)
	s := show(t, f)
	if got := s.Failed[0]; got.Node != bad.Name || !got.Granted || got.Since.IsZero() || !strings.Contains(got.Reason, "does not work on web-2") {
		t.Errorf("%+v failed, want %s for what it printed", got, bad.Name)
	}
	if got := strings.Join(s.Waits, "; "); !strings.Contains(got, "web-2 to be in service again") {
		t.Errorf("it waits for %q", got)
	}
	wantWhy(t, f, "web-1", "web-2 (grant since "+s.Grants[0].Since.UTC().Format("2006-01-02T15:04:05Z")+", failed)")
	if got := fleettest.InMaintenance(f.Observer.Checks()); !slices.Equal(got, []string{bad.Name}) {
		t.Errorf("%v are in maintenance, want %s", got, bad.Name)
	}

	// From now on it is out of service beside the holders of a slot.
	f.Observer.AlwaysChecks("few are in maintenance", fleettest.FewInMaintenance(2))
	if got := f.Jorc("cluster", "unlock", "rollout", bad.Name).OK(); !strings.Contains(got, bad.Name) {
		t.Errorf("unlock printed %q, want %s named", got, bad.Name)
	}
	if r := f.Jorc("update", "wait", "--timeout", "2m"); r.Code != 1 || !strings.Contains(r.Stderr, bad.Name) {
		t.Errorf("update wait exited %d, want 1 and %s named: %s", r.Code, bad.Name, r.Stderr)
	}
	for _, h := range f.Others(bad) {
		if v := versionOf(f.Observer.Keys(), h.Name); v != version {
			t.Errorf("%s runs %s, want %s", h.Name, v, version)
		}
	}
	f.Jorc("update", "trigger", "v5", "--max-parallel", "1", "--min-healthy", "1s").OK()
	waitExit(t, f, 0)
	allAt(f, "v5")
	f.Eventually("nobody to be in maintenance", func(context.Context) error {
		if got := fleettest.InMaintenance(f.Observer.Checks()); len(got) > 0 {
			return fmt.Errorf("%v are", got)
		}
		return nil
	})
}
