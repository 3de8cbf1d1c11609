package fleet_test

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
)

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
			t.Errorf("%s: held %v, %v; want %v (%s)", s.name, held, err, s.held, clustertest.JSON(t, v))
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
