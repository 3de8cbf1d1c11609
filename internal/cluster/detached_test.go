package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
)

// TestDeath kills a host's Consul agent: gossip tells, and from then on the
// host holds nothing back, is told of everywhere, and can be decommissioned.
func TestDeath(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	l := cluster.New(servers[0].Client(), "jorc", "default")
	for i, s := range servers {
		mustState(t, l, s.Node, cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateSuccess})
		mustReport(t, l, s.Node, []string{"v2", "v2", "v1"}[i])
	}
	dead := servers[2].Node
	single := func() (cluster.Uniqueness, error) { return l.UniqueVersion(t.Context(), "v2") }
	if got, err := single(); err != nil || got.Single {
		t.Errorf("while it lives: %+v, %v", got, err)
	}
	wantIs(t, "Departed while it lives", l.CheckDeparted(t.Context(), dead), cluster.ErrAlive)
	servers[2].Kill()
	consultest.Eventually(t, "gossip to miss a host", func(ctx context.Context) error {
		got, err := single()
		if err == nil && !got.Single {
			err = fmt.Errorf("%+v", got)
		}
		if err == nil && (len(got.Detached) != 1 || got.Detached[0].Host != dead || got.Detached[0].Life != cluster.LivenessDown) {
			t.Errorf("named apart: %+v", got.Detached)
		}
		return err
	})
	if all, err := l.Unaccounted(t.Context(), cluster.DefaultReportTTL()); err != nil || len(all) != 1 || all[0].Host != dead || !slices.Contains(all[0].Reasons, cluster.ReasonDown) {
		t.Errorf("Unaccounted = %+v, %v", all, err)
	}
	if all, err := l.Failures(t.Context(), false); err != nil || len(all) != 1 || all[0].Host != dead || all[0].Kind != cluster.FailureCheck {
		t.Errorf("Failures = %+v, %v", all, err)
	}
	if err := l.CheckDeparted(t.Context(), dead); err != nil {
		t.Errorf("Departed = %v", err)
	}
	if removed, _, err := l.Decommission(t.Context(), dead); err != nil || len(removed) != 3 {
		t.Errorf("Decommission = %v, %v", removed, err)
	}
	if got, err := single(); err != nil || !got.Single || len(got.Detached) > 0 {
		t.Errorf("after it was decommissioned: %+v, %v", got, err)
	}
}
