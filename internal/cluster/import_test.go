package cluster_test

import (
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
)

// TestImportKeepsTheLeaders: a file brings no leader beside one that leads now;
// where nobody does, those of the file lead.
func TestImportKeepsTheLeaders(t *testing.T) {
	t.Parallel()
	old, s := initialized(t)
	join(t, old, "a")
	join(t, old, "b")
	file, err := old.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file.Leaders.Leader = []string{"b", "stranger"}
	leading := func(c *cluster.Cluster, replace bool) string {
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
	if got, want := leading(cluster.New(s.Client(), "jorc", "new"), false), "[b] [] 1"; got != want {
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
