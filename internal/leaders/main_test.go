package leaders_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
)

// wantFailover lets a fail and checks that an election makes b lead instead.
func wantFailover(t testing.TB, c *fleet.Cluster, s *consultest.Server, timing cluster.Timing) {
	t.Helper()
	clustertest.AddNode(t, s, "a", "critical", "critical")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	e := leaders.NewElection(c, leaders.ElectionOptions{Node: "judge", Timing: timing, Lock: kv.LeaseOptions{TTL: 2 * time.Second}})
	running.Go(func() { _ = e.Run(ctx) })
	consultest.Eventually(t, "b to lead", func(ctx context.Context) error {
		l, err := c.Leaders(ctx)
		if err == nil && !slices.Equal(l.Leader, []string{"b"}) {
			err = fmt.Errorf("%q lead", l.Leader)
		}
		return err
	})
}
