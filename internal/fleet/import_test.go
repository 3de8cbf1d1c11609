package fleet_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// TestImportKeepsTheLeaders: a file brings no leader beside one that leads now;
// where no member leads, those of the file lead.
func TestImportKeepsTheLeaders(t *testing.T) {
	t.Parallel()
	old, s := clustertest.Initialized(t)
	clustertest.Join(t, old, "a")
	clustertest.Join(t, old, "b")
	file, err := old.Export(t.Context(), noDamage(t))
	if err != nil {
		t.Fatal(err)
	}
	file.Leaders.Leader = []string{"b", "stranger"}
	leading := func(c *fleet.Cluster, replace bool) string {
		t.Helper()
		if err := c.Import(t.Context(), file, replace); err != nil {
			t.Fatal(err)
		}
		l, err := c.Leaders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		retired := []string{}
		for _, r := range l.Retired {
			retired = append(retired, r.Node)
		}
		return fmt.Sprint(l.Leader, retired, l.Count)
	}
	if got, want := leading(old, true), "[a] [] 1"; got != want {
		t.Errorf("over a cluster that a leads: %s, want %s", got, want)
	}
	if got, want := leading(fleet.New(s.Client(), "jorc", "new"), false), "[b] [] 1"; got != want {
		t.Errorf("where there is none: %s, want %s", got, want)
	}
	file.Leaders.Count = 2
	if got, want := leading(old, true), "[a b] [] 2"; got != want {
		t.Errorf("with a place more: %s, want %s", got, want)
	}
	file.Leaders.Count = 1
	if got, want := leading(old, true), "[a] [b] 1"; got != want {
		t.Errorf("with a place less: %s, want %s", got, want)
	}
}

// TestImportOverDamage: a backup takes the place of whatever is damaged.
func TestImportOverDamage(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	clustertest.Join(t, c, "a")
	file, err := c.Export(t.Context(), noDamage(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"profile", "current/leaders", "current/control", "host/a/member"} {
		if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: c.Store().Path(key), Value: []byte(`{"x`)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Import(t.Context(), file, false); !errors.Is(err, kv.ErrDamaged) {
		t.Errorf("without replace: %v", err)
	}
	if err := c.Import(t.Context(), file, true); err != nil {
		t.Error(err)
	}
	state, err := c.Load(t.Context(), cluster.NeedState)
	if err != nil || len(state.Damaged) > 0 || len(state.Nodes()) != 1 {
		t.Errorf("after it: %+v, %v", state, err)
	}
	if control, err := c.Control(t.Context()); err != nil || control.Paused != nil {
		t.Errorf("Control = %+v, %v", control, err)
	}
}
