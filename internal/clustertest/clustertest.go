// Package clustertest makes clusters for tests, in a real Consul.
package clustertest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
)

// NewServer starts a Consul whose sessions may be short.
func NewServer(t testing.TB) *consultest.Server {
	t.Helper()
	return consultest.Start(t, consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"}))
}

// New returns a cluster of the test's own, not yet initialized.
func New(t testing.TB) (*fleet.Cluster, *consultest.Server) {
	t.Helper()
	s := NewServer(t)
	return fleet.New(s.Client(), "jorc", "prod"), s
}

// Initialized returns a cluster of the test's own.
func Initialized(t testing.TB) (*fleet.Cluster, *consultest.Server) {
	t.Helper()
	c, s := New(t)
	if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// TwoMembers returns a cluster of a and b, both well, of which a leads.
func TwoMembers(t testing.TB) (*fleet.Cluster, *consultest.Server) {
	t.Helper()
	c, s := Initialized(t)
	for _, node := range []string{"a", "b"} {
		AddNode(t, s, node, "passing", "passing")
		Join(t, c, node)
	}
	return c, s
}

// Join makes node a member with roles.
func Join(t testing.TB, c *fleet.Cluster, node string, roles ...string) {
	t.Helper()
	_, err := c.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles = roles
		return r, nil
	})
	if err != nil {
		t.Fatalf("Join(%s): %v", node, err)
	}
}

// AddNode puts a node into the catalog as if a Consul agent and a jorc agent
// ran there.
func AddNode(t testing.TB, s *consultest.Server, node, health, presence string) {
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

// Guarded is a cluster in a Consul with default deny, and who may do what.
type Guarded struct {
	Server  *consultest.Server
	Root    *fleet.Cluster
	Tokens  map[string]string         // kind of policy → token
	Clients map[string]*consul.Client // kind of policy → one for all that is tried
}

// NewGuarded returns a cluster in a Consul with default deny, with a token of each kind.
func NewGuarded(t *testing.T) *Guarded {
	t.Helper()
	s := consultest.Start(t, consultest.WithACL())
	g := &Guarded{Server: s, Root: fleet.New(s.Client(), "jorc", "prod"), Tokens: map[string]string{}, Clients: map[string]*consul.Client{}}
	if _, err := g.Root.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.New(s.Client(), "jorc", "prod2").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := append(g.Root.Policies(s.Node), g.Root.ElectorPolicy())
	for i, kind := range []string{fleet.PolicyAgent, fleet.PolicyOperator, fleet.PolicyOrchestrator, fleet.PolicyElector} {
		p := policies[i]
		for _, want := range []bool{true, false} {
			if changed, err := fleet.PutPolicy(t.Context(), s.Client(), p); err != nil || changed != want {
				t.Fatalf("PutPolicy(%s) = %v, %v; want %v", p.Name, changed, err, want)
			}
		}
		names := []string{p.Name}
		if kind == fleet.PolicyElector {
			names = append(names, policies[0].Name) // it goes beside that of an agent
		}
		token, err := s.Client().CreateToken(t.Context(), kind, 0, names...)
		if err != nil {
			t.Fatal(err)
		}
		g.Tokens[kind] = token.SecretID
	}
	return g
}

// As is the cluster called name as one with a token of a kind sees it.
func (g *Guarded) As(kind, name string) *fleet.Cluster {
	if g.Clients[kind] == nil {
		g.Clients[kind] = g.Server.ClientWithToken(g.Tokens[kind])
	}
	return fleet.New(g.Clients[kind], "jorc", name)
}

// Gateway stands between a client and a real Consul: it counts requests, and
// can lose the answers from the next transaction on.
type Gateway struct {
	Requests atomic.Int64
	Asked    func(path string) // nil: nothing
	Lose     atomic.Bool
	Lost     atomic.Bool
}

// Client is a client of s that goes through g.
func (g *Gateway) Client(t *testing.T, s *consultest.Server) *consul.Client {
	t.Helper()
	to := &url.URL{Scheme: "http", Host: s.HTTPAddr}
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(consultest.WholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Requests.Add(1)
		if g.Asked != nil {
			g.Asked(r.URL.Path)
		}
		transaction := strings.HasPrefix(r.URL.Path, "/v1/txn")
		switch {
		case g.Lost.Load():
			panic(http.ErrAbortHandler)
		case g.Lose.Load() && transaction:
			g.Lost.Store(true)
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	conf := s.Config()
	conf.Address = strings.TrimPrefix(server.URL, "http://")
	c, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Value is a value of a param.
func Value(t testing.TB, text string) profile.Value {
	t.Helper()
	v, err := profile.ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Set sets a param of the profile.
func Set(t testing.TB, c *fleet.Cluster, key, text string, ref profile.Ref) error {
	t.Helper()
	_, err := c.Set(t.Context(), profile.Scope{}, key, Value(t, text), ref)
	return err
}

// WantIs fails the test unless err is want; what is what returned it.
func WantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v; want %v", what, err, want)
	}
}

// JSON is v as JSON.
func JSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Params reads params as JSON has them.
func Params(t testing.TB, text string) profile.Params {
	t.Helper()
	p, err := profile.ParseParams(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
