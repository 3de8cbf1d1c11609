package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

func newServer(t testing.TB) *consultest.Server {
	t.Helper()
	return consultest.Start(t, consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"}))
}

// newCluster returns a cluster of the test's own, not yet initialized.
func newCluster(t testing.TB) (*cluster.Cluster, *consultest.Server) {
	t.Helper()
	s := newServer(t)
	return cluster.New(s.Client(), "jorc", "prod"), s
}

func initialized(t testing.TB) (*cluster.Cluster, *consultest.Server) {
	t.Helper()
	c, s := newCluster(t)
	if _, err := c.Init(t.Context(), cluster.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// twoMembers returns a cluster of a and b, both well, of which a leads.
func twoMembers(t testing.TB) (*cluster.Cluster, *consultest.Server) {
	t.Helper()
	c, s := initialized(t)
	for _, node := range []string{"a", "b"} {
		addNode(t, s, node, "passing", "passing")
		join(t, c, node)
	}
	return c, s
}

// wantFailover lets a fail and checks that an election makes b lead instead.
func wantFailover(t testing.TB, c *cluster.Cluster, s *consultest.Server, timing cluster.Timing) {
	t.Helper()
	addNode(t, s, "a", "critical", "critical")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	e := c.NewElection(cluster.ElectionOptions{Node: "judge", Timing: timing, Lock: kv.LeaseOptions{TTL: 2 * time.Second}})
	running.Go(func() { _ = e.Run(ctx) })
	consultest.Eventually(t, "b to lead", func(ctx context.Context) error {
		l, err := c.Leaders(ctx)
		if err == nil && !slices.Equal(l.Leader, []string{"b"}) {
			err = fmt.Errorf("%q lead", l.Leader)
		}
		return err
	})
}

func value(t testing.TB, text string) profile.Value {
	t.Helper()
	v, err := profile.ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func join(t testing.TB, c *cluster.Cluster, node string, roles ...string) {
	t.Helper()
	_, err := c.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles = roles
		return r, nil
	})
	if err != nil {
		t.Fatalf("Join(%s): %v", node, err)
	}
}

func set(t testing.TB, c *cluster.Cluster, key, text string, ref profile.Ref) error {
	t.Helper()
	_, err := c.Set(t.Context(), profile.Scope{}, key, value(t, text), ref)
	return err
}

func param(t testing.TB, c *cluster.Cluster, key string) string {
	t.Helper()
	d, err := c.Profile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := d.Params[key]; ok {
		return v.String()
	}
	return "missing"
}

// index is the number of Consul's last write below prefix.
func index(t testing.TB, s *consultest.Server, prefix string) uint64 {
	t.Helper()
	_, meta, err := s.Client().KVList(t.Context(), prefix, consul.Query{Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	return meta.Index
}

// addNode puts a node into the catalog as if a Consul agent and a jorc agent
// ran there.
func addNode(t testing.TB, s *consultest.Server, node, health, presence string) {
	t.Helper()
	s.Bystanders(node)
	checks := consul.HealthChecks{{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: health}}
	r := &consul.CatalogRegistration{Node: node, Address: "10.0.0.1", NodeMeta: map[string]string{"os": "linux"}, Checks: checks}
	if presence != "" {
		r.Service = &consul.AgentService{ID: "jorc-prod", Service: "jorc"}
		r.Checks = append(checks, &consul.HealthCheck{
			Node: node, CheckID: "service:jorc-prod", ServiceID: "jorc-prod", ServiceName: "jorc", Status: presence,
		})
	}
	if err := s.Client().CatalogRegister(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v; want %v", what, err, want)
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// noDamage fails the test for a document that an export leaves out.
func noDamage(t testing.TB) func(key string, err error) {
	return func(key string, err error) {
		t.Helper()
		t.Errorf("the export leaves out %s: %v", key, err)
	}
}
