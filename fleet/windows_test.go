//go:build fleet

package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/fleettest"
)

// TestWindows: outside of its window a rollout stands still, and it continues by
// itself when the window opens.
func TestWindows(t *testing.T) {
	t.Parallel()
	f := rolling(t)
	allow(f, 1)
	const version = "v2-gate"
	now := time.Now()
	f.Jorc("update", "trigger", version, "--max-parallel", "1", "--window", window(now.Add(6*time.Hour), now.Add(7*time.Hour))).OK()
	orchestrated(f)
	if got, holders := begun(f, version), f.Observer.Keys().Granted(); len(got)+len(holders) > 0 {
		t.Errorf("outside the window %v have begun and %v hold slots", got, holders)
	}
	if got := strings.Join(show(t, f).Waits, "; "); !strings.Contains(got, "its window: outside the window until ") {
		t.Errorf("it waits for %q, want its window", got)
	}
	wantWhy(t, f, "web-1", "outside the window until ")

	closes := minuteAfter(time.Now().Add(20 * time.Second))
	f.Jorc("update", "trigger", version, "--window", window(closes.Add(-time.Hour), closes)).OK()
	first := holder(f, version)
	if !time.Now().Before(closes) {
		t.Fatalf("%s was at work only when the window had closed", first.Name)
	}
	pass(f, closes)
	f.Observer.AlwaysChecks("nobody begins outside the window", func(checks []fleettest.Check) error {
		if others := slices.DeleteFunc(fleettest.InMaintenance(checks), func(node string) bool { return node == first.Name }); len(others) > 0 {
			return fmt.Errorf("%v are in maintenance", others)
		}
		return nil
	})
	open(f.Hosts...)
	f.Eventually(first.Name+" to come to an end", func(context.Context) error {
		k := f.Observer.Keys()
		if v, holders := versionOf(k, first.Name), k.Granted(); v != version || len(holders) > 0 {
			return fmt.Errorf("it runs %s; grants have %v", v, holders)
		}
		return nil
	})
	onlyOne(t, f, version, first)
	if got := f.Observer.Keys().Granted(); len(got) > 0 {
		t.Errorf("outside the window %v hold slots", got)
	}
	opens := minuteAfter(time.Now().Add(15 * time.Second))
	f.Jorc("update", "trigger", version, "--window", window(opens, opens.Add(time.Hour))).OK()
	onlyOne(t, f, version, first)
	f.Observer.AlwaysChecks("nobody begins outside the window", func([]fleettest.Check) error { return nil })
	waitExit(t, f, 0)
	allAt(f, version)
	for _, h := range f.Others(first) {
		if at := beganAt(t, h, version); at.Before(opens) {
			t.Errorf("%s began at %v, before the window opened at %v", h.Name, at, opens)
		}
	}
}

// window is one from and to a minute, on any day.
func window(from, to time.Time) string {
	return from.UTC().Format("15:04") + "-" + to.UTC().Format("15:04")
}

// minuteAfter is the first full minute that is not before t.
func minuteAfter(t time.Time) time.Time {
	return t.Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
}

// pass waits until it is so late.
func pass(f *fleettest.Fleet, at time.Time) {
	f.Eventually("it to be "+at.Format(time.TimeOnly), func(context.Context) error {
		if now := time.Now(); now.Before(at) {
			return fmt.Errorf("it is %s", now.Format(time.TimeOnly))
		}
		return nil
	})
}

// beganAt is when a host began with a version, by its own notes.
func beganAt(t *testing.T, h *fleettest.Host, version string) time.Time {
	t.Helper()
	for line := range strings.Lines(h.File("converged")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "begin "+version+" "); ok {
			ns, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatalf("%s noted %q: %v", h.Name, line, err)
			}
			return time.Unix(0, ns)
		}
	}
	t.Fatalf("%s has not begun with %s", h.Name, version)
	return time.Time{}
}
