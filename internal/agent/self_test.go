package agent

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
)

// TestWatchSelfAsksAgain: whether the cluster's filter leaves the host out is
// asked again when Consul answered with a failure, also when there is no news.
func TestWatchSelfAsksAgain(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	proxy := server.Proxy()
	client := proxy.Client()
	c := cluster.New(client, "jorc", "default")
	if _, err := c.Init(t.Context(), cluster.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	filter, err := profile.Of(`Node == "another"`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), profile.Scope{}, cluster.ParamFilter, filter, profile.Ref{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Join(t.Context(), server.Node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	log, watched := hclog.NewNullLogger(), c.WatchedBy(server.Node)
	p := &part{
		node: server.Node, cluster: watched, log: log, holds: newHolds(watched.Cluster, server.Node, t.TempDir(), log),
		checks: &checks{client: client, node: server.Node, log: log},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	run := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); ctx.Err() == nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
	run(watched.Run)
	run(p.holds.run)
	run(p.checks.run)
	consultest.Eventually(t, "what the host knows of itself", func(context.Context) error {
		_, known := p.holds.self.Get()
		_, seen := p.checks.failing.Get()
		if !known || !seen {
			return fmt.Errorf("holds: %t, checks: %t", known, seen)
		}
		return nil
	})
	var asked atomic.Int64
	proxy.Do(func(r *http.Request) (f consultest.Fault) {
		if r.URL.Path == "/v1/kv/jorc/default/host/"+server.Node+"/member" && !r.URL.Query().Has("index") && asked.Add(1) <= 2 {
			f.Status = http.StatusInternalServerError
		}
		return f
	})
	selves := make(chan rollout.Self, 100)
	run(func(ctx context.Context) error {
		return p.WatchSelf(ctx, func(s rollout.Self) { selves <- s })
	})
	consultest.Eventually(t, "an answer", func(context.Context) error {
		select {
		case s := <-selves:
			if !s.Outside || !s.Member || s.Sick {
				t.Errorf("got %+v", s)
			}
			return nil
		default:
			return fmt.Errorf("%d questions", asked.Load())
		}
	})
}
