package catalog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestServiceReachesTheCatalogAsConfigured(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	web := config.Service{
		Name: "web", ID: "web-1", Address: "10.0.0.5", Port: 8080, Tags: []string{"http", "v1"},
		Meta:            map[string]string{"team": "a"},
		TaggedAddresses: map[string]config.Address{"eth0": {Host: "10.0.0.5"}, "eth1": {Host: "10.1.0.5", Port: 81}},
		Weights:         &config.Weights{Passing: 7, Warning: 2},
		Checks: []config.Check{
			newScript(t, 0).check(),
			{HTTP: "http://127.0.0.1:1/", Method: "HEAD", Header: map[string][]string{"A": {"b"}}, Interval: time.Hour},
			{TCP: "127.0.0.1:1", Interval: time.Hour},
			{UDP: "127.0.0.1:1", Interval: time.Hour},
			{GRPC: "127.0.0.1:1/x", Interval: time.Hour},
			{H2Ping: "127.0.0.1:1", Interval: time.Hour},
			{TTL: time.Hour, ID: "mine", Name: "own heartbeat", Notes: "notes", Status: consul.HealthWarning},
			{Alias: "jorc"},
		},
	}
	x := runRegistrar(t, c, fast(t), web).ready()
	wantServices(t, c, "web-1")
	got, _, err := c.AgentService(t.Context(), "web-1", consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Service != "web" || got.Port != 8080 || !slices.Equal(got.Tags, web.Tags) || got.Meta["team"] != "a" ||
		got.Weights != (consul.AgentWeights{Passing: 7, Warning: 2}) {
		t.Errorf("service: %+v", got)
	}
	for name, want := range map[string]consul.ServiceAddress{
		"eth0": {Address: "10.0.0.5", Port: 8080}, "eth1": {Address: "10.1.0.5", Port: 81},
	} {
		if got.TaggedAddresses[name] != want {
			t.Errorf("tagged address %s: %+v, want %+v", name, got.TaggedAddresses[name], want)
		}
	}
	checks, err := c.AgentChecks(t.Context(), `ServiceID == "web-1"`)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{"ttl", "http", "tcp", "udp", "grpc", "h2ping", "ttl", "alias"} {
		id := fmt.Sprintf("service:web-1:%d", i+1)
		if i == 6 {
			id = "mine"
		}
		if checks[id] == nil || checks[id].Type != kind {
			t.Errorf("check %s: %+v, want type %s", id, checks[id], kind)
		}
	}
	if own := checks["mine"]; own == nil || own.Status != consul.HealthWarning || own.Notes != "notes" || own.Name != "own heartbeat" {
		t.Errorf("ttl check: %+v", own)
	}
	wantState(t, c, "service:web-1:1", consul.HealthPassing)
	wantState(t, c, "service:jorc", consul.HealthPassing)
	if st := x.service("web-1"); !st.Registered || st.Error != "" || len(st.Checks) != 8 || st.Checks[0].State != consul.HealthPassing {
		t.Errorf("status: %+v", st)
	}
}

func TestComesBackAfterItWasForgotten(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(web.Close)
	s := consultest.Start(t)
	c := s.Client()
	runRegistrar(t, c, fast(t),
		config.Service{Name: "script", Checks: []config.Check{newScript(t, 0).check()}},
		config.Service{Name: "http", Checks: []config.Check{{HTTP: web.URL, Interval: time.Second}}},
		config.Service{Name: "bare"},
	).ready()
	wantState(t, c, "service:script", consul.HealthPassing)
	wantState(t, c, "service:http", consul.HealthPassing)

	for _, id := range []string{"bare", "script", "jorc"} {
		if err := c.DeregisterService(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		consultest.Eventually(t, id+" to come back", func(ctx context.Context) error {
			_, _, err := c.AgentService(ctx, id, consul.Query{})
			return err
		})
	}
	wantState(t, c, "service:script", consul.HealthPassing)
	consultest.Eventually(t, "passing to be known", func(ctx context.Context) error {
		checks, _, err := c.HealthState(ctx, consul.HealthPassing, consul.Query{})
		if err == nil && len(checks) < 4 {
			err = fmt.Errorf("%d checks pass", len(checks))
		}
		return err
	})

	critical := criticalSeen(t, s)
	s.Kill()
	s.Restart() // its state is in memory and lost
	wantServices(t, c, "bare", "http", "script")
	wantState(t, c, "service:script", consul.HealthPassing)
	wantState(t, c, "service:http", consul.HealthPassing)
	wantState(t, c, "service:jorc", consul.HealthPassing)
	if got := critical(); len(got) > 0 {
		t.Errorf("healthy checks were critical on the way: %v", got)
	}
}

// criticalSeen watches for critical checks until the returned function is
// called, which returns them.
func criticalSeen(t *testing.T, s *consultest.Server) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := s.Client()
	seen, started, done := []string{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		first := true
		err := consul.Watch(ctx, c, consul.Query{}, func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
			return c.HealthState(ctx, consul.HealthCritical, q)
		}, func(u consul.Update[consul.HealthChecks]) {
			for _, check := range u.Value {
				seen = append(seen, check.CheckID)
			}
			if first {
				close(started)
				first = false
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("watch: %v", err)
		}
	}()
	<-started
	return func() []string {
		cancel()
		<-done
		return seen
	}
}

func TestReloadLeavesTheUnchangedAlone(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	same := config.Service{Name: "same", Checks: []config.Check{newScript(t, 0).check()}}
	change := config.Service{Name: "change", Port: 1, Checks: []config.Check{newScript(t, 0).check()}}
	x := runRegistrar(t, c, fast(t), same, change, config.Service{Name: "leave"}).ready()
	wantState(t, c, "service:same", consul.HealthPassing)
	wantState(t, c, "service:change", consul.HealthPassing)
	before := catalogIndex(t, c, "same")
	runs := x.service("same").Checks[0].Runs

	critical := criticalSeen(t, s)
	change.Port, change.Checks = 2, append(change.Checks, newScript(t, 0).check())
	change.Checks[0].ID, change.Checks[1].ID = "service:change", "second"
	x.Reload([]config.Service{same, change, {Name: "join"}})
	wantServices(t, c, "same", "change", "join")
	consultest.Eventually(t, "the new port", func(ctx context.Context) error {
		got, _, err := c.AgentService(ctx, "change", consul.Query{})
		if err == nil && got.Port != 2 {
			err = fmt.Errorf("port %d", got.Port)
		}
		return err
	})
	wantState(t, c, "second", consul.HealthPassing)
	x.heartbeats(3)
	if after := catalogIndex(t, c, "same"); after != before {
		t.Errorf("the unchanged service was written: index %d, was %d", after, before)
	}
	if now := x.service("same").Checks[0].Runs; now <= runs {
		t.Errorf("runs of the unchanged check: %d, were %d", now, runs)
	}
	for _, id := range critical() {
		if id != "second" { // it is new and has no known status
			t.Errorf("%s was critical on the way", id)
		}
	}
}

// catalogIndex returns the indexes of a service and its checks.
func catalogIndex(t *testing.T, c *consul.Client, name string) uint64 {
	t.Helper()
	entries, _, err := c.HealthService(t.Context(), name, "", false, consul.Query{})
	if err != nil || len(entries) != 1 {
		t.Fatalf("%s: %v, %v", name, entries, err)
	}
	sum := entries[0].Service.ModifyIndex
	for _, check := range entries[0].Checks {
		sum += check.ModifyIndex
	}
	return sum
}
