package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// BenchmarkIncrement increments one param with 1, 16 and 64 writers, each with
// connections of its own as so many hosts have. ns/op is per increment of all
// together: with 16 and 64 at most twice that of 1. "ref" reads and sets with a
// reference, again after each mismatch, as a script does.
func BenchmarkIncrement(b *testing.B) {
	first, s := initialized(b)
	for _, writers := range []int{1, 16, 64} {
		clusters := make([]*cluster.Cluster, writers)
		for i := range clusters {
			clusters[i] = cluster.New(s.Client(), "jorc", "prod")
		}
		b.Run(fmt.Sprintf("update/writers=%d", writers), func(b *testing.B) {
			benchmarkIncrement(b, first, clusters, func(c *cluster.Cluster, key string, tries *atomic.Int64) error {
				return c.UpdateParam(context.Background(), profile.Scope{}, key, func(v profile.Value, _ bool) (profile.Value, error) {
					tries.Add(1)
					return increment(v)
				})
			})
		})
		b.Run(fmt.Sprintf("ref/writers=%d", writers), func(b *testing.B) {
			benchmarkIncrement(b, first, clusters, withReference)
		})
	}
}

// withReference reads and sets until the reference holds; a mismatch tells the
// value as it is now.
func withReference(c *cluster.Cluster, key string, tries *atomic.Int64) error {
	d, err := c.Profile(context.Background())
	if err != nil {
		return err
	}
	now := d.Params[key]
	for {
		tries.Add(1)
		next, err := increment(now)
		if err != nil {
			return err
		}
		_, err = c.Set(context.Background(), profile.Scope{}, key, next, profile.Ref{Value: &now})
		var mismatch *profile.MismatchError
		if !errors.As(err, &mismatch) {
			return err
		}
		now = mismatch.Have
	}
}

func benchmarkIncrement(b *testing.B, first *cluster.Cluster, clusters []*cluster.Cluster, one func(*cluster.Cluster, string, *atomic.Int64) error) {
	key := fmt.Sprintf("%s-%d", b.Name(), b.N)
	if err := set(b, first, key, "0", profile.Ref{}); err != nil {
		b.Fatal(err)
	}
	var left, tries atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var running sync.WaitGroup
	for _, c := range clusters {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				if err := one(c, key, &tries); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.StopTimer()
	b.ReportMetric(float64(tries.Load())/float64(b.N), "tries/op")
	if got := param(b, first, key); got != fmt.Sprint(b.N) {
		b.Errorf("%s is %s after %d increments", key, got, b.N)
	}
}

func increment(v profile.Value) (profile.Value, error) {
	n, ok := v.Plain().(int64)
	if !ok {
		return v, errors.New("not a number")
	}
	return profile.Of(n + 1)
}

// BenchmarkMembers reads and filters 5,000 members with their hosts; the target
// is 250 ms.
func BenchmarkMembers(b *testing.B) {
	c, s := initialized(b)
	client := s.Client()
	batch := c.Store().NonAtomicBatch()
	tree := kv.NewTree[cluster.Record](c.Store(), "members/", 1)
	var adding sync.WaitGroup
	next := atomic.Int64{}
	for range 16 {
		adding.Go(func() {
			for i := next.Add(1); i <= 5000; i = next.Add(1) {
				node := fmt.Sprintf("node-%04d", i)
				err := client.CatalogRegister(context.Background(), &consul.CatalogRegistration{
					Node: node, Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), NodeMeta: map[string]string{"os": "linux"},
					Service: &consul.AgentService{ID: "jorc-prod", Service: "jorc"},
					Checks: consul.HealthChecks{
						{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing", Output: "Agent alive and reachable"},
						{Node: node, CheckID: "service:jorc-prod", Name: "jorc agent", ServiceID: "jorc-prod", ServiceName: "jorc", Status: "passing", Output: "jorc agent is running"},
					},
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	adding.Wait()
	for i := range 5000 {
		t := c.Store().Txn()
		tree.At(fmt.Sprintf("node-%04d", i+1)).SetIn(t, cluster.Record{
			Roles: []string{"db"}, Zone: fmt.Sprintf("rack-%d", i%50), Params: params(b, fmt.Sprintf(`{"disks": %d, "path": "/srv"}`, i%8)),
		})
		batch.Add(t)
	}
	if err := batch.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, expr := range map[string]string{
		"record": `Zone == "rack-7" and Params["disks"] == 3`,
		"health": `Zone == "rack-7" and Health == passing and Agent == up`,
		"all":    `NodeMeta["os"] == "linux" and Health == passing and "jorc" in Services and Version == "" and Params["cluster/leader"] != true`,
	} {
		f, err := cluster.ParseFilter(expr)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				all, err := c.Members(b.Context(), cluster.MembersOptions{Filter: f})
				if err != nil || len(all) == 0 {
					b.Fatalf("%d members, %v", len(all), err)
				}
			}
		})
	}
}
