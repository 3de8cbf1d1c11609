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
		{0, clustertest.JSON(t, v), time.Minute},
		{time.Minute - 1, clustertest.JSON(t, v), time.Minute},
		{time.Minute, clustertest.JSON(t, cluster.Control{ObserveOnly: &long, Roles: map[string]cluster.Hold{"db": long}, Nodes: map[string]cluster.Hold{"n2": off}}), time.Hour},
		{time.Hour, clustertest.JSON(t, cluster.Control{}), 0},
	} {
		at := now.Add(test.at)
		if got := clustertest.JSON(t, v.At(at)); got != test.want {
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
	if err := json.Unmarshal([]byte(old), &before); err != nil || clustertest.JSON(t, before.At(now.AddDate(9, 0, 0))) != old {
		t.Errorf("a pause without an end is %s (%v)", clustertest.JSON(t, before), err)
	}
}
