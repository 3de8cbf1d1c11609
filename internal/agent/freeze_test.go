package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

func (f *grantFleet) cluster() *fleet.Cluster { return fleet.New(f.client, "jorc", "default") }

// freeze adds a freeze that began already.
func (f *grantFleet) freeze(id string, long time.Duration, roles ...string) (end time.Time) {
	f.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	end = now.Add(long)
	if _, err := f.cluster().AddFreeze(f.t.Context(), pace.Freeze{ID: id, From: now, To: end, Roles: roles, Reason: "the sale"}); err != nil {
		f.t.Fatal(err)
	}
	return end
}

// notBefore waits until all hosts have begun with version, and checks that none does
// before end.
func (f *grantFleet) notBefore(end time.Time, version string) {
	f.t.Helper()
	f.eventually("all to begin with "+version, func() error {
		waits := ""
		for name, h := range f.hosts {
			early := time.Now().Before(end)
			switch has := slices.Contains(h.begun(), version); {
			case has && early && time.Now().Before(end):
				f.t.Fatalf("%s began with %s before %v", name, version, end)
			case !has:
				waits += " " + name
			}
		}
		if waits != "" {
			return fmt.Errorf("%s wait", waits)
		}
		return nil
	})
}

// TestHoldEndsByTheHostsClock: without an orchestrator hosts end a hold by their own clock,
// although what is stored still has it.
func TestHoldEndsByTheHostsClock(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	end := time.Now().Add(3 * time.Second).UTC().Truncate(time.Second)
	h := cluster.Hold{Since: time.Now().UTC().Truncate(time.Second), Until: end, Reason: "disks"}
	for _, s := range []cluster.Scope{{}, {Node: "h1"}} {
		if _, err := f.cluster().Hold(t.Context(), s, h); err != nil {
			t.Fatal(err)
		}
	}
	f.openAll("v2")
	f.trigger("v2", nil)
	f.notBefore(end, "v2")
	f.eventually("all to run v2", func() error { return f.at("v2") })
	stored, err := kv.NewDoc[cluster.Control](kv.New(f.client, "jorc/default"), cluster.KeyControl, 1).Get(t.Context())
	if err != nil || stored.Value.Hold == nil || !stored.Value.Hold.Until.Equal(end) {
		t.Errorf("the hold is stored as %+v (%v): a host changed it", stored.Value.Hold, err)
	}
}

// TestFreezePacesEveryVersion: in a freeze no host begins a version: neither one that was
// triggered with a policy or without, nor one that another program wrote; when it ends they
// begin.
func TestFreezePacesEveryVersion(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.orchestrate("h0", nil)
	for version, begin := range map[string]func(version string){
		"v2": func(version string) { f.trigger(version, nil) },
		"v3": func(version string) { f.trigger(version, atOnce(3)) },
		"v4": f.writeDesired,
	} {
		end := f.freeze(version, 3*time.Second)
		f.openAll(version)
		begin(version)
		f.notBefore(end, version)
		f.done(version)
	}
}

// writeDesired writes the desired version past the rollout.
func (f *grantFleet) writeDesired(version string) {
	f.t.Helper()
	doc := kv.NewText(kv.New(f.client, "jorc/default"), cluster.KeyDesired)
	old, err := doc.Get(f.t.Context())
	if err == nil {
		_, err = doc.CompareAndSwap(f.t.Context(), old, version)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestFreezeWithoutOrchestrator: a version that another program wrote waits on each host for
// the end of a freeze of its roles, by the host's clock.
func TestFreezeWithoutOrchestrator(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	end := f.freeze("a", 4*time.Second, "db") // h0
	f.openAll("v2")
	f.writeDesired("v2")
	f.eventually("the host that is not frozen to begin", func() error {
		if !slices.Contains(f.hosts["h1"].begun(), "v2") {
			return fmt.Errorf("h1 began with %v", f.hosts["h1"].begun())
		}
		return nil
	})
	delete(f.hosts, "h1")
	f.notBefore(end, "v2")
}

// TestFreezeOfARole: only members with the role wait, and say why; once the freeze is
// removed they follow.
func TestFreezeOfARole(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 3)
	f.orchestrate("h0", nil)
	f.freeze("a1", time.Hour, "db") // h0
	f.openAll("v2")
	f.trigger("v2", atOnce(3))
	f.eventually("the others to run v2", func() error {
		if a, b := f.report("h1").Version, f.report("h2").Version; a != "v2" || b != "v2" {
			return fmt.Errorf("they run %s and %s", a, b)
		}
		return nil
	})
	reasons, err := f.rollouts().Why(t.Context(), "h0")
	if err != nil || len(reasons) != 1 || !strings.HasPrefix(reasons[0].Detail, "frozen until ") || !strings.HasSuffix(reasons[0].Detail, " by freeze a1 of role db: the sale") {
		t.Errorf("h0 waits because of %+v (%v)", reasons, err)
	}
	if got := f.hosts["h0"].begun(); slices.Contains(got, "v2") {
		t.Errorf("h0 began with %v", got)
	}
	if changed, err := f.cluster().RemoveFreeze(t.Context(), "a1"); err != nil || !changed {
		t.Fatal(changed, err)
	}
	f.done("v2")
}

// TestFreezeIgnored: a version for which an operator gave a reason, and a rollback, begin in
// a freeze.
func TestFreezeIgnored(t *testing.T) {
	t.Parallel()
	f := newGrantFleet(t, 2)
	f.orchestrate("h0", nil)
	f.freeze("a1", time.Hour)
	f.openAll("v2")
	if _, err := f.rollouts().Trigger(t.Context(), rollout.Request{Version: "v2", Policy: atOnce(2), Exceptions: pace.Exceptions{DuringFreeze: "a hole in the fence"}}); err != nil {
		t.Fatal(err)
	}
	f.done("v2")
	f.openAll("v1")
	if _, err := f.rollouts().Rollback(t.Context(), rollout.Request{Version: "v1"}, "it was worse"); err != nil {
		t.Fatal(err)
	}
	f.done("v1")
	f.trigger("v3", atOnce(2))
	f.eventually("the next version to wait for the end of the freeze", func() error {
		if s, err := f.rollouts().Show(t.Context()); err != nil || !strings.Contains(strings.Join(s.Waits, "; "), "the end of a freeze: frozen until ") {
			return fmt.Errorf("%s (%v)", f.show(), err)
		}
		return nil
	})
}
