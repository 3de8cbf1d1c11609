package fleet_test

import (
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/profile"
)

// TestDerivedParams: roles show as params, in filters and to scripts alike, and
// no param makes another member a leader.
func TestDerivedParams(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	clustertest.Join(t, c, "first", "db")
	clustertest.Join(t, c, "second", "db")
	yes := clustertest.Value(t, "true")
	for _, key := range []string{"cluster/leader", "cluster/manager", "cluster/own"} {
		if err := c.SetMemberParam(t.Context(), "second", key, yes, profile.Ref{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := clustertest.Set(t, c, "cluster/leader", "true", profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]int{
		`Params["cluster/leader"] == true`:   1,
		`Params["cluster/leader"] != true`:   1,
		`Params["cluster/manager"] == true`:  0,
		`Params["cluster/leader"] == false`:  1,
		`Params["cluster/manager"] == false`: 2,
		`Params["cluster/worker"] == true`:   1,
		`Params["cluster/own"] == true`:      1,
	} {
		if got := members(t, c, expr); len(got) != want {
			t.Errorf("%s: %d members, want %d", expr, len(got), want)
		}
	}
	for _, test := range []struct{ node, leader, worker, db string }{
		{"first", "true", "missing", "true"},
		{"second", "false", "true", "true"},
		{"nobody", "false", "missing", "missing"},
	} {
		v, err := c.View(t.Context(), test.node)
		if err != nil {
			t.Fatal(err)
		}
		for _, compose := range []bool{false, true} {
			have := v.Effective(compose).Params()
			for key, want := range map[string]string{"cluster/manager": "false", "cluster/leader": test.leader, "cluster/worker": test.worker, "cluster/db": test.db} {
				got := "missing"
				if v, ok := have[key]; ok {
					got = v.String()
				}
				if got != want {
					t.Errorf("%s of %s is %s, want %s (compose: %v)", key, test.node, got, want, compose)
				}
			}
		}
	}
}

// TestRolesThatAreNone: what would show as a param of another meaning is not a role.
func TestRolesThatAreNone(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	for _, role := range []string{"leader", "worker", "profile", "filter", "leader-eligible", "a/b", ""} {
		_, err := c.Join(t.Context(), "n", func(r cluster.Record) (cluster.Record, error) {
			r.Roles = []string{role}
			return r, nil
		})
		if err == nil {
			t.Errorf("%q is a role", role)
		}
	}
	if got := members(t, c, ""); len(got) != 0 {
		t.Errorf("members: %v", got)
	}
}
