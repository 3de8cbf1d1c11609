package leaders_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/leaders"
)

// through returns the cluster as one sees it who reaches Consul by a proxy.
func through(t testing.TB, p *consultest.Proxy) *fleet.Cluster {
	t.Helper()
	return fleet.New(p.Client(), "jorc", "prod")
}

// TestLeadersUnderPartition cuts the leaders off, one after the other, while
// Consul and the others continue: who is cut off stops leading before another
// begins, so that never more than one leads.
func TestLeadersUnderPartition(t *testing.T) {
	t.Parallel()
	c, server := clustertest.Initialized(t)
	// A leader that a busy machine delays for longer than StepDown would step down.
	timing := cluster.Timing{StepDown: 5 * time.Second, Replace: 8 * time.Second}
	s := &stage{on: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	ways := map[string]*consultest.Proxy{}
	for _, node := range []string{"a", "b", "c"} {
		clustertest.AddNode(t, server, node, consul.HealthPassing, consul.HealthPassing)
		clustertest.Join(t, c, node)
		ways[node] = server.Proxy()
		mine := through(t, ways[node])
		running.Go(func() { _ = leaders.Lead(ctx, mine, node, timing, s.lead(node)) })
	}
	e := leaders.NewElection(c, leaders.ElectionOptions{Node: "judge", Timing: timing, Lock: kv.LeaseOptions{TTL: 2 * time.Second}})
	running.Go(func() { _ = e.Run(ctx) })
	one := func(what string, not ...string) string {
		t.Helper()
		leader := ""
		consultest.Eventually(t, what, func(context.Context) error {
			now := s.leading()
			if len(now) != 1 || slices.Contains(not, now[0]) {
				return fmt.Errorf("%q lead", now)
			}
			leader = now[0]
			return nil
		})
		return leader
	}
	cut := func(node string) {
		ways[node].Do(func(*http.Request) consultest.Fault { return consultest.Fault{Hang: true} })
		clustertest.AddNode(t, server, node, consul.HealthPassing, consul.HealthCritical) // its TTL check ran out
	}
	first := one("a leader")
	cut(first)
	second := one("a leader in place of one that is cut off", first)
	cut(second)
	third := one("a leader in place of the second", first, second)
	for _, node := range []string{first, second} {
		ways[node].Do(nil)
		clustertest.AddNode(t, server, node, consul.HealthPassing, consul.HealthPassing)
	}
	for _, node := range []string{first, second} { // they hear of Consul again
		before := ways[node].Asked("/")
		consultest.Eventually(t, node+" asks again", func(context.Context) error {
			if ways[node].Asked("/") == before {
				return errors.New("no request")
			}
			return nil
		})
	}
	if got := one("a leader when all are back"); got != third {
		t.Errorf("%s leads; want %s, which did nothing wrong", got, third)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most != 1 || s.turns != 3 {
		t.Errorf("%d led at one time, in %d turns; want 1, in 3", s.most, s.turns)
	}
}

// TestNewsOfLeadershipIsOneAnswer: becoming and ceasing to be leader is reported by
// the answer to one question that waited for it, not by asking often.
func TestNewsOfLeadershipIsOneAnswer(t *testing.T) {
	t.Parallel()
	c, server := clustertest.Initialized(t)
	proxy := server.Proxy()
	mine := through(t, proxy)
	news := make(chan leaders.Leadership, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		// So long a time that no confirmation falls into the test.
		_ = leaders.Follow(ctx, mine, "a", cluster.Timing{StepDown: time.Hour}, func(s leaders.Leadership) { news <- s })
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	until := func(leading bool) {
		for s := range news {
			if s.Leading == leading {
				return
			}
		}
	}
	asked := func() int { return proxy.Asked("/v1/kv/jorc/prod/current/leaders") }
	until(false)
	before := asked()
	const changes = 4
	for range changes {
		clustertest.Join(t, c, "a")
		until(true)
		if _, err := c.Leave(t.Context(), "a", false); err != nil {
			t.Fatal(err)
		}
		until(false)
	}
	// Each news is an answer, after which the next question waits; one that it
	// leads is confirmed by a read of its own.
	if got, most := asked()-before, changes*3+2; got > most {
		t.Errorf("%d requests for %d changes; want %d at most", got, 2*changes, most)
	}
}

// BenchmarkNewsOfLeadership is from the moment that a member joins
// or leave until the member itself knows that it leads or does so no more.
func BenchmarkNewsOfLeadership(b *testing.B) {
	c, server := clustertest.Initialized(b)
	mine := fleet.New(server.Client(), "jorc", "prod")
	news := make(chan leaders.Leadership, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = leaders.Follow(ctx, mine, "a", cluster.Timing{}, func(s leaders.Leadership) { news <- s })
	})
	b.Cleanup(func() { cancel(); running.Wait() })
	until := func(leading bool) {
		for s := range news {
			if s.Leading == leading {
				return
			}
		}
	}
	until(false)
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		clustertest.Join(b, c, "a")
		until(true)
		took = append(took, time.Since(begin))
		begin = time.Now()
		if _, err := c.Leave(b.Context(), "a", false); err != nil {
			b.Fatal(err)
		}
		until(false)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	for name, share := range map[string]int{"p50-ms": 50, "p99-ms": 99} {
		b.ReportMetric(float64(took[(len(took)-1)*share/100])/1e6, name)
	}
}
