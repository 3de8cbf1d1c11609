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

// TestOperated: operators change a rollout while it runs.
func TestOperated(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	t.Run("promote and supersede", func(t *testing.T) { promoteAndSupersede(t, f) })
	t.Run("abort", func(t *testing.T) { abort(t, f) })
	t.Run("another policy half way", func(t *testing.T) { lowered(t, f) })
}

// promoteAndSupersede: no host follows a canary before an operator promotes it; another
// version takes the place of a rollout, and a host that is updating never runs the old.
func promoteAndSupersede(t *testing.T, f *fleettest.Fleet) {
	const version, next = "v2-gate", "v3-gate"
	f.Jorc("update", "trigger", version, "--canary", "1", "--max-parallel", "1").OK()
	canary := holder(f, version)
	open(canary)
	runs(f, canary, version)
	f.Eventually("the rollout to wait for consent", func(context.Context) error {
		if s := show(t, f); s.Phase != "canary" || !slices.Equal(s.Waits, []string{"'jorc update promote'"}) {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	onlyOne(t, f, version, canary)
	f.Jorc("update", "promote").OK()
	second := holder(f, version)

	before := len(f.Observer.History("current/version"))
	if r := f.Jorc("update", "trigger", next, "--max-parallel", "1", "--require-converged"); r.Code != 1 || !strings.Contains(r.Stderr, "4 are not at "+version) || !strings.Contains(r.Stderr, second.Name) {
		t.Errorf("trigger --require-converged exited %d, want 1 and those behind: %s", r.Code, r.Stderr)
	}
	if all := f.Observer.History("current/version"); len(all) != before || f.Observer.Keys()["current_version"].Value != version {
		t.Errorf("the refused trigger wrote: %+v", all[before:])
	}
	r := f.Jorc("update", "trigger", next, "--max-parallel", "1")
	r.OK()
	for _, h := range f.Others(canary) {
		if !strings.Contains(r.Stderr, h.Name) {
			t.Errorf("trigger says %q, want %s to be named: it is behind", r.Stderr, h.Name)
		}
	}
	if strings.Contains(r.Stderr, canary.Name) || !strings.Contains(r.Stderr, "the rollout of "+version+" was unfinished (batch, triggered by ") || !strings.Contains(r.Stderr, ") and is superseded: 4 are not at") {
		t.Errorf("trigger says %q", r.Stderr)
	}
	open(f.Hosts...)
	waitExit(t, f, 0)
	allAt(f, next)
	for _, h := range f.Others(canary) {
		for _, change := range f.Observer.History("nodes/" + h.Name) {
			if v := versionOf(fleettest.Keys{"nodes/" + h.Name: change.Key}, h.Name); v == version {
				t.Errorf("%s ran %s, which was superseded while it was running", h.Name, version)
			}
		}
	}
	if got, want := begun(f, version), names([]*fleettest.Host{canary, second}); !slices.Equal(sorted(got), want) {
		t.Errorf("%v have begun with %s, want %v", got, version, want)
	}
	shut(f.Hosts...)
}

// abort: a host that is updating ends its update, no other begins, and nothing but
// another trigger changes that.
func abort(t *testing.T, f *fleettest.Fleet) {
	const version = "v4-gate"
	f.Jorc("update", "trigger", version, "--max-parallel", "1").OK()
	first := holder(f, version)
	f.Jorc("update", "abort", "--reason", "a mistake").OK()
	waitExit(t, f, 6)
	open(f.Hosts...)
	f.Eventually(first.Name+" to come to an end", func(context.Context) error {
		k := f.Observer.Keys()
		if v, holders := versionOf(k, first.Name), k.Granted(); v != version || len(holders) > 0 {
			return fmt.Errorf("it runs %s; grants have %v", v, holders)
		}
		return nil
	})
	onlyOne(t, f, version, first)
	f.Jorc("update", "abort").OK()
	for _, verb := range []string{"pause", "resume", "promote"} {
		if r := f.Jorc("update", verb); r.Code != 1 || !strings.Contains(r.Stderr, "aborted") {
			t.Errorf("update %s of an aborted rollout exited %d: %s", verb, r.Code, r.Stderr)
		}
	}
	if s := show(t, f); s.State != "aborted" || s.Version != version || s.Stopped == nil || s.Stopped.Reason != "a mistake" {
		t.Errorf("the rollout is %+v", s)
	}
	if got := f.Jorc("update", "current").OK(); got != version+"\n" {
		t.Errorf("%q is desired, want %s: abort leaves it", got, version)
	}
	other := f.Others(first)[0]
	wantWhy(t, f, other.Name, "the rollout was aborted")
	f.Jorc("update", "trigger", version, "--max-parallel", "1").OK()
	waitExit(t, f, 0)
	allAt(f, version)
}

// lowered: when fewer may be out of service than are, these continue, and no host
// begins beside them.
func lowered(t *testing.T, f *fleettest.Fleet) {
	const version = "v5-gate"
	shut(f.Hosts...)
	allow(f, 3)
	f.Jorc("update", "trigger", version, "--max-parallel", "3").OK()
	three := atGate(f, version, 3)
	f.Jorc("update", "trigger", version, "--max-parallel", "1").OK()
	last := names(three)
	f.Observer.AlwaysChecks("who begins is alone", func(checks []fleettest.Check) error {
		out := fleettest.InMaintenance(checks)
		more := slices.DeleteFunc(slices.Clone(out), func(node string) bool { return slices.Contains(last, node) })
		last = out
		if len(more) > 0 && len(out) > 1 {
			return fmt.Errorf("%v began while %v are out of service", more, out)
		}
		return nil
	})
	for _, h := range three[:2] {
		open(h)
		runs(f, h, version)
		orchestrated(f)
		if got := begun(f, version); !slices.Equal(sorted(got), names(three)) {
			t.Errorf("%v have begun, want %v: not one of them may be out of service beside another", got, names(three))
		}
	}
	open(f.Hosts...)
	waitExit(t, f, 0)
	allAt(f, version)
}

// TestRollback: more fail than may, so the version is taken back: to the last
// one that all ran without a failure, and not to the one before, at which some
// failed. Not a request fails.
func TestRollback(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 2)
	load := loaded(f)
	const good, bad = "v2", "v9-bad-all"
	f.Jorc("update", "trigger", good, "--max-parallel", "2", "--min-healthy", "1s").OK()
	waitExit(t, f, 0)

	some := turn(f, "web-2", 2, "-bad-web-2")
	f.Jorc("update", "trigger", some, "--batches", "2,100%", "--max-parallel", "1", "--min-healthy", "1s").OK()
	waitExit(t, f, 6)
	if s := show(t, f); len(s.Failed) != 1 || s.Failed[0].Node != "web-2" || s.Now.Done < 2 {
		t.Fatalf("after web-2 failed the rollout is %+v", s)
	}
	f.Jorc("update", "trigger", bad, "--max-parallel", "2", "--max-failures", "1", "--on-failure", "rollback", "--min-healthy", "1s").OK()
	if r := f.Jorc("update", "wait", "--timeout", "2m"); r.Code != 1 || !strings.Contains(r.Stderr, bad+" is rolled back to "+good) && !strings.Contains(r.Stderr, bad+" was rolled back to "+good) {
		t.Errorf("update wait exited %d, want 1 and that %s is rolled back to %s: %s", r.Code, bad, good, r.Stderr)
	}
	allAt(f, good)
	f.Eventually("the rollback to be done", func(context.Context) error {
		if s := show(t, f); s.State != "done" || s.Version != good || s.Now.Done != len(f.Hosts) || s.RollbackOf == nil || s.RollbackOf.Version != bad {
			return fmt.Errorf("the rollout is %+v", s)
		}
		return nil
	})
	if got := begun(f, bad); len(got) != 2 || !slices.Contains(got, "web-2") {
		t.Errorf("%v began with %s, want web-2, which held a slot, and one more: one may fail", got, bad)
	}
	var desired []string
	for _, change := range f.Observer.History("current_version") {
		desired = append(desired, change.Value)
	}
	if want := []string{"v1", good, some, bad, good}; !slices.Equal(desired, want) {
		t.Errorf("%v were desired in turn, want %v", desired, want)
	}
	for _, h := range webs(f) {
		load.WaitServed(h.Name + " " + good)
		if got := h.Jorc("update", "local").OK(); got != good+"\n" {
			t.Errorf("%s runs %q", h.Name, got)
		}
	}
	if got := f.Jorc("cluster", "events", "--kind", "change_taken_back").OK(); strings.Count(got, "rolled back to") != 1 {
		t.Errorf("the journal tells of rollbacks: %q", got)
	}
	load.Stop(200)
	healthy(t, f)
}

func sorted(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return all
}
