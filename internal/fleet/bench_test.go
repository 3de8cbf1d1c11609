package fleet_test

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
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// BenchmarkIncrement increments one param with 1, 16 and 64 writers, each with
// connections and memory of its own as so many hosts have, and with 64 that
// share a process. ns/op is per increment of all together, "%uncontended" how
// much of the speed of one writer that is: at least 50. "ref" reads and sets
// with a reference, again after each mismatch, as a script does. "bare" is a
// read and a compare-and-swap of the same document, past jorc's packages.
func BenchmarkIncrement(b *testing.B) {
	// So many hosts have so many addresses; Consul limits the connections of one.
	s := consultest.Start(b, consultest.WithConfig(map[string]any{"limits": map[string]any{"http_max_conns_per_client": 2000}}))
	first := fleet.New(s.Client(), "jorc", "prod")
	if _, err := first.Init(b.Context(), fleet.InitOptions{}); err != nil {
		b.Fatal(err)
	}
	ways := map[string]func(*fleet.Cluster, string, *atomic.Int64) error{"update": withUpdate, "ref": withReference}
	b.Run("bare/writers=1", func(b *testing.B) { benchmarkBare(b, first, s.Client()) })
	for _, way := range []string{"update", "ref"} {
		alone := 0.0
		for _, writers := range []int{1, 16, 64} {
			clusters := make([]*fleet.Cluster, writers)
			for i := range clusters {
				clusters[i] = fleet.New(s.Client(), "jorc", "prod")
			}
			b.Run(fmt.Sprintf("%s/writers=%d", way, writers), func(b *testing.B) {
				benchmarkIncrement(b, first, clusters, ways[way], &alone)
			})
		}
		b.Run(way+"/one-process=64", func(b *testing.B) {
			benchmarkIncrement(b, first, slices.Repeat([]*fleet.Cluster{first}, 64), ways[way], &alone)
		})
	}
}

func benchmarkBare(b *testing.B, c *fleet.Cluster, client *consul.Client) {
	key := c.Store().Path("profile")
	for b.Loop() {
		p, _, err := client.KVGet(b.Context(), key, consul.Query{})
		if err != nil {
			b.Fatal(err)
		}
		p.Flags++ // a write of the same bytes and flags changes no index
		if ok, err := client.KVCAS(b.Context(), p); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func withUpdate(c *fleet.Cluster, key string, tries *atomic.Int64) error {
	_, err := c.ChangeProfile(context.Background(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		tries.Add(1)
		next, err := increment(d.Params[key])
		if err != nil {
			return profile.Document{}, err
		}
		return e.Set(d, profile.Scope{}, key, next, profile.Ref{})
	})
	return err
}

// withReference reads and sets until the reference holds; a mismatch tells the
// value as it is now.
func withReference(c *fleet.Cluster, key string, tries *atomic.Int64) error {
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

func benchmarkIncrement(b *testing.B, first *fleet.Cluster, clusters []*fleet.Cluster, one func(*fleet.Cluster, string, *atomic.Int64) error, alone *float64) {
	key := fmt.Sprintf("%s-%d", b.Name(), b.N)
	if err := clustertest.Set(b, first, key, "0", profile.Ref{}); err != nil {
		b.Fatal(err)
	}
	var left, tries, longest atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var running sync.WaitGroup
	for _, c := range clusters {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				begin := time.Now()
				if err := one(c, key, &tries); err != nil {
					b.Error(err)
					return
				}
				for took := int64(time.Since(begin)); took > longest.Load(); {
					longest.Store(took) // of two that are nearly the longest either will do
				}
			}
		})
	}
	running.Wait()
	b.StopTimer()
	each := b.Elapsed().Seconds() / float64(b.N)
	if len(clusters) == 1 {
		*alone = each
	}
	b.ReportMetric(float64(tries.Load())/float64(b.N), "tries/op")
	b.ReportMetric(100**alone/each, "%uncontended")
	b.ReportMetric(float64(longest.Load())/1e6, "longest-ms")
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
	c, s := clustertest.Initialized(b)
	client := s.Client()
	batch := c.Store().NonAtomicBatch()
	tree := kv.NewTree[cluster.Record](c.Store(), cluster.PrefixHosts, 1).Ending(cluster.EndMember)
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
			Roles: []string{"db"}, Zone: fmt.Sprintf("rack-%d", i%50), Params: clustertest.Params(b, fmt.Sprintf(`{"disks": %d, "path": "/srv"}`, i%8)),
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
		"every":  `Address != "" and Datacenter == dc1 and NodeMeta["os"] == "linux" and Health == passing and Agent == up and "jorc" in Services and Version == "" and Params["disks"] == 3`,
	} {
		f, err := cluster.ParseFilter(expr)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				all, err := c.Members(b.Context(), fleet.MembersOptions{Filter: f})
				if err != nil || len(all) == 0 {
					b.Fatalf("%d members, %v", len(all), err)
				}
			}
		})
	}
}
