package leaders_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
)

// TestAgentAtWork: with its policy an agent keeps its record, elects and leads.
func TestAgentAtWork(t *testing.T) {
	t.Parallel()
	g := clustertest.NewGuarded(t)
	c := g.As(fleet.PolicyElector, "prod")
	node := g.Server.Node
	presence(t, g.Server)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	s := &stage{on: map[string]bool{}}
	running.Go(func() { _ = c.NewRecordSync(fleet.RecordSyncOptions{Node: node, LeaveOnStop: true}).Run(ctx) })
	running.Go(func() { _ = leaders.NewElection(c, leaders.ElectionOptions{Node: node}).Run(ctx) })
	running.Go(func() { _ = leaders.Lead(ctx, c, node, cluster.Timing{}, s.lead(node)) })
	consultest.Eventually(t, "the agent to lead", func(context.Context) error {
		if len(s.leading()) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	cancel()
	running.Wait()
	if _, err := g.Root.Record(t.Context(), node); !errors.Is(err, cluster.ErrNoMember) {
		t.Errorf("it is still a member: %v", err)
	}
}

// TestElectorReads: while the leader is well, an elector does not read all hosts
// because a document of another one changed. It does once the leader is not a member.
func TestElectorReads(t *testing.T) {
	t.Parallel()
	c, s := clustertest.TwoMembers(t)
	lead := func() []string {
		l, err := c.Leaders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Leader
	}
	leader, other := lead()[0], "b"
	if leader == other {
		other = "a"
	}
	var all, one atomic.Int64
	g := &clustertest.Gateway{Asked: func(path string) {
		switch path {
		case "/v1/kv/jorc/prod/" + cluster.PrefixHosts:
			all.Add(1)
		case "/v1/kv/jorc/prod/" + cluster.HostPrefix(leader):
			one.Add(1)
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	e := leaders.NewElection(fleet.New(g.Client(t, s), "jorc", "prod"), leaders.ElectionOptions{Node: "elector", Lock: kv.LeaseOptions{TTL: 2 * time.Second}})
	running.Go(func() { _ = e.Run(ctx) })
	consultest.Eventually(t, "the elector looks at the leader", func(context.Context) error {
		if one.Load() == 0 {
			return errors.New("the elector did not look at the leader alone")
		}
		return nil
	})
	listed := all.Load()
	for i := range 3 {
		before := one.Load()
		if _, err := c.Store().Txn().Set(cluster.GrantsKey(other), []byte(fmt.Sprint(i))).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		consultest.Eventually(t, "the elector looks again", func(context.Context) error {
			if one.Load() == before {
				return errors.New("the elector did not look at the leader")
			}
			return nil
		})
	}
	if n := all.Load(); n != listed {
		t.Errorf("three changes of another host's grant: %d reads of all hosts", n-listed)
	}
	if _, err := c.Store().Txn().Delete(cluster.MemberKey(leader)).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the other member leads", func(context.Context) error {
		if slices.Equal(lead(), []string{other}) {
			return nil
		}
		return fmt.Errorf("%v leads", lead())
	})
}
