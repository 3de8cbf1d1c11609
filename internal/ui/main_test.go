package ui_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/ui"
)

func TestMain(m *testing.M) { os.Exit(consultest.Main(m)) }

// fixture is a cluster with members in a real Consul, and its fleet.
type fixture struct {
	t      testing.TB
	server *consultest.Server
	client *consul.Client
	name   string
	c      *cluster.Cluster
	fleets *ui.Fleets
}

const secret = "s3cret-of-the-database"

// newFixture returns a cluster of the hosts a, b and c: a and b run v1, c is critical
// and has failed to configure itself.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	s, name := consultest.Shared(t)
	return newFixtureOn(t, s, s.Client(), name)
}

func newFixtureOn(t testing.TB, s *consultest.Server, client *consul.Client, name string) *fixture {
	t.Helper()
	f := &fixture{t: t, server: s, client: client, name: name, c: cluster.New(s.Client(), "jorc", name)}
	f.must(f.c.Init(t.Context(), cluster.InitOptions{Leaders: 1}))
	f.param("db_password", secret, `{"type":"string","secret":true}`)
	f.param("motd", "welcome", "")
	for node, check := range map[string]string{"a": "passing", "b": "passing", "c": "critical"} {
		f.join(node, check)
	}
	for _, node := range []string{"a", "b"} {
		f.must(f.c.ReportVersion(t.Context(), f.node(node), "v1"))
	}
	f.must(f.c.SetState(t.Context(), f.node("c"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: "no space left on device"}))
	f.fleets = f.run(ui.FleetOptions{Client: client, Prefix: "jorc", Default: name})
	return f
}

// run runs fleets until the test ends.
func (f *fixture) run(o ui.FleetOptions) *ui.Fleets {
	fleets := ui.NewFleets(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fleets.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("Run = %v", err)
		}
	})
	consultest.Eventually(f.t, "the fleets run", func(ctx context.Context) error {
		_, err := fleets.Fleet(ctx, "", false)
		return err
	})
	return fleets
}

func (f *fixture) must(_ any, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// node is the name of a host of this test: the catalog belongs to all tests.
func (f *fixture) node(name string) string { return f.name + "-" + name }

func (f *fixture) param(key, value, schema string) {
	f.t.Helper()
	_, err := f.c.ChangeProfile(f.t.Context(), func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		v, err := profile.Text(value)
		if err == nil {
			d, err = e.Set(d, profile.Scope{}, key, v, profile.Ref{})
		}
		if err != nil || schema == "" {
			return d, err
		}
		text, err := profile.ParseValue(schema)
		if err != nil {
			return d, err
		}
		return e.SetSchema(d, key, text)
	})
	f.must(nil, err)
}

// join registers a host with an agent and the service web, and makes it a member.
func (f *fixture) join(name, check string) {
	f.t.Helper()
	node := f.node(name)
	presence := "jorc-" + f.name
	for _, r := range []*consul.CatalogRegistration{
		{Node: node, Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing"}}},
		{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: presence, Service: "jorc"},
			Checks: consul.HealthChecks{{Node: node, CheckID: "service:" + presence, ServiceID: presence, ServiceName: "jorc", Status: "passing"}},
		},
		{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: "web", Service: "web-" + f.name, Port: 80},
			Checks: consul.HealthChecks{{Node: node, CheckID: "service:web", Name: "web", ServiceID: "web", ServiceName: "web-" + f.name, Status: check}},
		},
	} {
		f.must(nil, f.client.CatalogRegister(f.t.Context(), r))
	}
	f.must(f.c.Join(f.t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
		r.Roles, r.Zone, r.Provides = []string{"app"}, "rack-"+name, []string{"web-" + f.name}
		v, err := profile.Text(secret)
		if err == nil {
			r.Params, err = r.Params.Set("db_password", v, profile.Ref{})
		}
		return r, err
	}))
}

// orchestrate runs an orchestrator that paces rollouts until the test ends.
func (f *fixture) orchestrate() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	o := orchestrator.New(orchestrator.Options{
		Client: f.client, Prefix: "jorc", Cluster: f.name, Node: f.node("a"), Grants: true, Interval: time.Second,
		Deciders: []orchestrator.Decider{orchestrator.ForRollout(rollout.New(f.client, "jorc", f.name))},
	})
	go func() { ended <- o.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("orchestrator: %v", err)
		}
	})
}

// trigger begins a rollout with a canary.
func (f *fixture) trigger(version string) {
	f.t.Helper()
	f.must(rollout.New(f.client, "jorc", f.name).Trigger(f.t.Context(), rollout.Request{
		Version: version, By: "ann", Policy: func(p *rollout.Policy) { p.Canary, p.MaxParallel = 1, rollout.Amount{N: 3} },
	}))
}

// fleet is the test's cluster as a viewer sees it.
func (f *fixture) fleet(sealed bool) *ui.Fleet {
	f.t.Helper()
	fleet, err := f.fleets.Fleet(f.t.Context(), "", sealed)
	f.must(nil, err)
	return fleet
}

// eventually waits for a snapshot that is as wanted; wanted returns what is missing.
func (f *fixture) eventually(what string, fleet *ui.Fleet, wanted func(*ui.Snapshot) string) *ui.Snapshot {
	f.t.Helper()
	var found *ui.Snapshot
	consultest.Eventually(f.t, what, func(ctx context.Context) error {
		s, err := fleet.Snapshot(ctx)
		if err != nil {
			return err
		}
		if missing := wanted(s); missing != "" {
			return fmt.Errorf("%s", missing)
		}
		found = s
		return nil
	})
	return found
}
