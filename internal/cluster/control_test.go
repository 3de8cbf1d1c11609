package cluster_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

// TestHeld: node beats role beats cluster.
func TestHeld(t *testing.T) {
	t.Parallel()
	on, off := cluster.Hold{Reason: "on"}, cluster.Hold{Off: true}
	for _, test := range []struct {
		name    string
		control cluster.Control
		want    bool
	}{
		{"nothing", cluster.Control{}, false},
		{"cluster", cluster.Control{Hold: &on}, true},
		{"role", cluster.Control{Roles: map[string]cluster.Hold{"db": on}}, true},
		{"another role", cluster.Control{Roles: map[string]cluster.Hold{"web": on}}, false},
		{"role off", cluster.Control{Hold: &on, Roles: map[string]cluster.Hold{"db": off}}, false},
		{"node off", cluster.Control{Roles: map[string]cluster.Hold{"db": on}, Nodes: map[string]cluster.Hold{"n": off}}, false},
		{"node on, role off", cluster.Control{Roles: map[string]cluster.Hold{"db": off}, Nodes: map[string]cluster.Hold{"n": on}}, true},
		{"first role counts", cluster.Control{Roles: map[string]cluster.Hold{"db": off, "worker": on}}, false},
	} {
		if _, got := test.control.Held("n", []string{"db", "worker"}); got != test.want {
			t.Errorf("%s: held is %v, want %v", test.name, got, test.want)
		}
	}
}

// TestControl: holds are written once, lifted where they were put, and become
// exceptions below wider ones.
func TestControl(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.New(t)
	ctx := t.Context()
	h := cluster.Hold{Since: time.Now().UTC().Truncate(time.Second), Reason: "why"}
	type step struct {
		name    string
		do      func() (bool, error)
		changed bool
		held    bool // node n with role db
	}
	node, role, all := cluster.Scope{Node: "n"}, cluster.Scope{Role: "db"}, cluster.Scope{}
	hold := func(s cluster.Scope) func() (bool, error) { return func() (bool, error) { return c.Hold(ctx, s, h) } }
	unhold := func(s cluster.Scope) func() (bool, error) { return func() (bool, error) { return c.Unhold(ctx, s, h) } }
	for _, s := range []step{
		{"unhold nothing", unhold(all), false, false},
		{"hold node", hold(node), true, true},
		{"hold node again", hold(node), false, true},
		{"unhold node", unhold(node), true, false},
		{"hold role", hold(role), true, true},
		{"except node", unhold(node), true, false},
		{"unhold role", unhold(role), true, false},
		{"hold all", hold(all), true, true},
		{"except role", unhold(role), true, false},
		{"unhold all", unhold(all), true, false},
		{"hold all anew, exceptions are gone", hold(all), true, true},
	} {
		changed, err := s.do()
		if err != nil || changed != s.changed {
			t.Errorf("%s: changed %v, %v; want %v", s.name, changed, err, s.changed)
		}
		v, err := c.ControlOf(ctx, "n")
		if _, held := v.Held("n", []string{"db"}); err != nil || held != s.held {
			t.Errorf("%s: held %v, %v; want %v (%s)", s.name, held, err, s.held, asJSON(t, v))
		}
	}
	for _, want := range []bool{true, false} {
		if changed, err := c.Pause(ctx, h); changed != want || err != nil {
			t.Errorf("Pause = %v, %v; want %v", changed, err, want)
		}
	}
	if v, err := c.ControlOf(ctx, "n"); err != nil || v.Paused == nil || *v.Paused != h {
		t.Errorf("paused is %v, %v", v.Paused, err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := c.Resume(ctx); changed != want || err != nil {
			t.Errorf("Resume = %v, %v; want %v", changed, err, want)
		}
	}
}

// TestParseArchive: what is not an export of a cluster is refused as a whole.
func TestParseArchive(t *testing.T) {
	t.Parallel()
	const good = `{"format":1,"name":"p","profile":{"name":"p","params":{"cluster/profile":"p"}},"leaders":{"count":1},"members":{"n":{"roles":["db"]}}}`
	if a, err := cluster.ParseArchive([]byte(good)); err != nil || a.Name != "p" || len(a.Members) != 1 {
		t.Errorf("ParseArchive = %+v, %v", a, err)
	}
	for _, bad := range []string{
		``, `[]`, `{}`, `{"format":2}`,
		`{"format":1,"name":"p","profile":{"name":"p","params":{}},"leaders":{"count":1}}`,
		`{"format":1,"name":"p","profile":{"name":"p","params":{"cluster/profile":"q"}},"leaders":{"count":1}}`,
		`{"format":1,"name":"p","profile":{"name":"p","params":{"cluster/profile":"p"}},"leaders":{"count":1000}}`,
		`{"format":1,"name":"p","profile":{"name":"p","params":{"cluster/profile":"p"}},"leaders":{"count":1},"members":{"a/b":{}}}`,
		`{"format":1,"name":"p","profile":{"name":"p","params":{"cluster/profile":"p"}},"leaders":{"count":1},"members":{"n":{"roles":["leader"]}}}`,
	} {
		_, err := cluster.ParseArchive([]byte(bad))
		if !errors.Is(err, cluster.ErrInvalid) && !errors.Is(err, profile.ErrInvalid) && !errors.Is(err, text.ErrName) && !errors.Is(err, profile.ErrDamaged) {
			t.Errorf("ParseArchive(%s) = %v", bad, err)
		}
	}
}

// TestHoldsEnd: at its end a hold is over for every reader, whether the end is written or
// not; exceptions end with it; and another end takes the place of the one before.
func TestHoldsEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	until := func(d time.Duration) cluster.Hold {
		return cluster.Hold{Since: now.Add(-time.Hour), Until: now.Add(d), Reason: "why"}
	}
	short, long, off := until(time.Minute), until(time.Hour), cluster.Hold{Off: true}
	v := cluster.Control{
		Paused: &short, ObserveOnly: &long, Hold: &short, Roles: map[string]cluster.Hold{"db": long, "web": off},
		Nodes: map[string]cluster.Hold{"n1": short, "n2": off},
	}
	for _, test := range []struct {
		at     time.Duration
		want   string
		change time.Duration // 0: none
	}{
		{0, asJSON(t, v), time.Minute},
		{time.Minute - 1, asJSON(t, v), time.Minute},
		{time.Minute, asJSON(t, cluster.Control{ObserveOnly: &long, Roles: map[string]cluster.Hold{"db": long}, Nodes: map[string]cluster.Hold{"n2": off}}), time.Hour},
		{time.Hour, asJSON(t, cluster.Control{}), 0},
	} {
		at := now.Add(test.at)
		if got := asJSON(t, v.At(at)); got != test.want {
			t.Errorf("after %v: %s, want %s", test.at, got, test.want)
		}
		if change := v.Change(at); test.change == 0 != change.IsZero() || test.change > 0 && !change.Equal(now.Add(test.change)) {
			t.Errorf("after %v it changes at %v, want after %v", test.at, change, test.change)
		}
	}
	if got := short.String() + ", " + short.Left(now); got != "since 2026-11-23T11:00:00Z until 2026-11-23T12:01:00Z: why, 1m0s left" {
		t.Errorf("it says %q", got)
	}
	old := `{"paused":{"since":"2026-11-23T11:00:00Z","reason":"why"}}`
	var before cluster.Control
	if err := json.Unmarshal([]byte(old), &before); err != nil || asJSON(t, before.At(now.AddDate(9, 0, 0))) != old {
		t.Errorf("a pause without an end is %s (%v)", asJSON(t, before), err)
	}
}

// TestHoldAgain: a hold that is there gets another end; one that is over begins again.
func TestHoldAgain(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.New(t)
	ctx, since := t.Context(), time.Now().UTC().Truncate(time.Second)
	scopes := []cluster.Scope{{}, {Role: "db"}, {Node: "n"}}
	stored := func(s cluster.Scope) cluster.Hold {
		t.Helper()
		v, err := c.ControlOf(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case s.Node != "":
			return v.Nodes[s.Node]
		case s.Role != "":
			return v.Roles[s.Role]
		case v.Hold == nil:
			return cluster.Hold{}
		}
		return *v.Hold
	}
	for _, s := range scopes {
		soon, late := since.Add(time.Hour), since.Add(2*time.Hour)
		for _, step := range []struct {
			h       cluster.Hold
			changed bool
			want    cluster.Hold
		}{
			{cluster.Hold{Since: since, Until: soon, Reason: "first", By: "ann"}, true, cluster.Hold{Since: since, Until: soon, Reason: "first", By: "ann"}},
			{cluster.Hold{Since: soon.Add(-1), Until: soon, Reason: "second", By: "bob"}, false, cluster.Hold{Since: since, Until: soon, Reason: "first", By: "ann"}},
			{cluster.Hold{Since: soon.Add(-1), Until: late, By: "bob"}, true, cluster.Hold{Since: since, Until: late, Reason: "first", By: "bob"}},
			{cluster.Hold{Since: soon.Add(-1), Reason: "third"}, true, cluster.Hold{Since: since, Reason: "third"}},
			{cluster.Hold{Since: since, Until: since.Add(-time.Minute)}, true, cluster.Hold{}}, // it is over at once
			{cluster.Hold{Since: since, Reason: "anew"}, true, cluster.Hold{Since: since, Reason: "anew"}},
		} {
			changed, err := c.Hold(ctx, s, step.h)
			if got := stored(s); err != nil || changed != step.changed || got != step.want {
				t.Errorf("%s: %+v makes %+v, changed %t (%v); want %+v, %t", s, step.h, got, changed, err, step.want, step.changed)
			}
		}
	}
}
