package leaders_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
)

// TestDamagedLeaderIsReplaced: that the record of a leader which fails cannot be
// read keeps no other from taking its place.
func TestDamagedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	c, s := clustertest.TwoMembers(t)
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/host/a/member", Value: []byte(`{"roles": `)}); err != nil {
		t.Fatal(err)
	}
	wantFailover(t, c, s, cluster.Timing{StepDown: 100 * time.Millisecond, Replace: 200 * time.Millisecond})
}

// TestDamagedLeaders: an elector writes who leads again, as it was, when the
// document holds something else; a member joins and leaves meanwhile, and a count
// can be set.
func TestDamagedLeaders(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	for _, garbage := range []string{"garbage", `{"format":1,"leader":["a/b"],"count":1}`, `{"format":1,"count":100000}`} {
		put := func() {
			t.Helper()
			if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/current/leaders", Value: []byte(garbage)}); err != nil {
				t.Fatal(err)
			}
		}
		put()
		if _, err := c.Leaders(t.Context()); !errors.Is(err, kv.ErrDamaged) || cluster.RepairHint(err) == "" {
			t.Errorf("Leaders of %s: %v", garbage, err)
		}
		if _, err := c.Join(t.Context(), "n", func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
			t.Errorf("Join beside %s: %v", garbage, err)
		}
		if _, err := c.Leave(t.Context(), "n", false); err != nil {
			t.Errorf("Leave beside %s: %v", garbage, err)
		}
		if err := c.SetCount(t.Context(), 1); err != nil {
			t.Errorf("SetCount over %s: %v", garbage, err)
		}
		put()
	}
	if _, err := c.Join(t.Context(), "n", func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	timing := cluster.Timing{StepDown: time.Second, Replace: 3 * time.Second}
	running.Go(func() { _ = leaders.NewElection(c, leaders.ElectionOptions{Node: "n", Timing: timing}).Run(ctx) })
	led := func(context.Context) error {
		l, err := c.Leaders(t.Context())
		if err == nil && !slices.Equal(l.Leader, []string{"n"}) {
			err = fmt.Errorf("leaders are %v", l.Leader)
		}
		return err
	}
	consultest.Eventually(t, "a leader in place of what was damaged", led)
	if err := c.SetCount(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/current/leaders", Value: []byte("garbage")}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the same leader again", led)
	if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/prod/current/leaders", Value: []byte(`{"format":1,"leader":["evil"],"count":1}`)}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "a member to lead in place of a host that is not a member", led)
}
