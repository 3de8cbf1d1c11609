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

// allow holds the fleet to so many hosts out of service, from now on, and the
// rollout to what is desired.
func allow(f *fleettest.Fleet, most int) {
	f.Observer.Always("few have a grant", fleettest.FewGranted(most))
	f.Observer.AlwaysChecks("few are in maintenance", fleettest.FewInMaintenance(most))
	f.Observer.Always("one rollout, that of the desired version", oneRollout)
}

// loaded begins a load that all web hosts serve.
func loaded(f *fleettest.Fleet) *fleettest.Load {
	load := f.Load(front)
	for _, h := range webs(f) {
		load.WaitServed(h.Name)
	}
	return load
}

// TestRolloutUnderLoad: a version reaches all hosts, one at a time, while
// requests come through haproxy; none fails.
func TestRolloutUnderLoad(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	load := loaded(f)
	f.Jorc("update", "trigger", "v2", "--canary", "1", "--max-parallel", "1", "--min-healthy", "1s").OK()
	waitExit(t, f, 0)
	allAt(f, "v2")
	for _, h := range webs(f) {
		load.WaitServed(h.Name + " v2")
	}
	if s := show(t, f); s.State != "done" || s.Now.Done != len(f.Hosts) {
		t.Errorf("the rollout is %+v", s)
	}
	load.Stop(200)
}

// TestFailures: a canary that fails is the only one; one that fails in the
// middle stops the others until an operator resumes; the next version repairs both.
func TestFailures(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 2)
	load := loaded(f)

	const bad = "v2-bad-all"
	f.Jorc("update", "trigger", bad, "--canary", "1", "--max-parallel", "2", "--min-healthy", "1s").OK()
	waitExit(t, f, 6)
	s := show(t, f)
	if s.State != "paused" || s.Phase != "canary" || len(s.Failed) != 1 || !s.Failed[0].Granted || s.Failed[0].Reason == "" {
		t.Fatalf("after the canary failed the rollout is %+v", s)
	}
	canary := s.Failed[0].Node
	if got := begun(f, bad); !slices.Equal(got, []string{canary}) {
		t.Errorf("%v began with %s, want the canary %s only", got, bad, canary)
	}
	f.Jorc("update", "trigger", "v3", "--max-parallel", "2", "--min-healthy", "1s").OK()
	waitExit(t, f, 0)
	allAt(f, "v3")

	middle := turn(f, "web-2", 2, "-bad-web-2")
	f.Jorc("update", "trigger", middle, "--batches", "3,100%", "--max-parallel", "1", "--min-healthy", "1s").OK()
	waitExit(t, f, 6)
	s = show(t, f)
	if s.State != "paused" || len(s.Failed) != 1 || s.Failed[0].Node != "web-2" || !s.Failed[0].Granted {
		t.Fatalf("after web-2 failed the rollout is %+v", s)
	}
	f.Jorc("cluster", "orchestrate").OK()
	if got := begun(f, middle); len(got) > 3 || !slices.Contains(got, "web-2") {
		t.Errorf("%v began with %s, want no others than the first three", got, middle)
	}
	f.Jorc("update", "trigger", middle, "--max-parallel", "2", "--min-healthy", "1s").OK()
	f.Jorc("update", "resume").OK()
	f.Eventually("all others to run "+middle, func(context.Context) error {
		for _, h := range f.Others(f.Host("web-2")) {
			if v := versionOf(f.Observer.Keys(), h.Name); v != middle {
				return fmt.Errorf("%s runs %s", h.Name, v)
			}
		}
		return nil
	})
	if got := f.Observer.Keys().Granted(); !slices.Contains(got, "web-2") {
		t.Errorf("web-2 failed and %v hold slots", got)
	}
	f.Jorc("update", "trigger", "v5", "--max-parallel", "2", "--min-healthy", "1s").OK()
	waitExit(t, f, 0)
	allAt(f, "v5")
	load.Stop(200)
}

// TestPauseAndResume: while a rollout is paused the hosts that are updating
// end their updates and no other begins.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	const version = "v2-gate"
	f.Jorc("update", "trigger", version, "--max-parallel", "1").OK()
	first := holder(f, version)
	f.Jorc("update", "pause").OK()
	waitExit(t, f, 6)
	open(f.Hosts...)
	f.Eventually(first.Name+" to come to an end", func(context.Context) error {
		k := f.Observer.Keys()
		if v, holders := versionOf(k, first.Name), k.Granted(); v != version || len(holders) > 0 {
			return fmt.Errorf("it runs %s; grants have %v", v, holders)
		}
		return nil
	})
	for range 3 {
		f.Jorc("cluster", "orchestrate").OK()
	}
	if got := begun(f, version); !slices.Equal(got, []string{first.Name}) {
		t.Errorf("%v have begun, want %s only: the rollout is paused", got, first.Name)
	}
	f.Jorc("update", "resume").OK()
	waitExit(t, f, 0)
	allAt(f, version)
}

// TestRebootWithSlot: a host that is killed while it holds a slot keeps it, and
// continues when it is back. No other begins meanwhile.
func TestRebootWithSlot(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	load := loaded(f)
	const version = "v2-gate"
	f.Jorc("update", "trigger", version, "--max-parallel", "1", "--min-healthy", "1s", "--order", "web").OK()
	h := holder(f, version)
	h.Kill9All()
	f.Eventually(h.Name+" to be seen dead", func(context.Context) error {
		for _, m := range members(t, f) {
			if m.Node == h.Name && m.Agent == "up" {
				return fmt.Errorf("it is %+v", m)
			}
		}
		return nil
	})
	open(f.Hosts...)
	for range 3 {
		f.Jorc("cluster", "orchestrate").OK()
	}
	if got := begun(f, version); !slices.Equal(got, []string{h.Name}) {
		t.Errorf("%v have begun, want %s only: it holds the slot", got, h.Name)
	}
	h.Boot()
	waitExit(t, f, 0)
	allAt(f, version)
	if n := strings.Count(h.File("converged"), "begin "+version+" "); n != 1 {
		t.Errorf("%s began %d times, want once: the task was done", h.Name, n)
	}
	load.Stop(200)
}
