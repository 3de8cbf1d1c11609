package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestForeignServicesAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	o, other := fast(t), fast(t)
	o.Cluster, other.Cluster = "one", "two"
	foreign := &consul.ServiceRegistration{ID: "held", Name: "held", Port: 99}
	bystander := &consul.ServiceRegistration{ID: "bystander", Name: "bystander"}
	for _, f := range []*consul.ServiceRegistration{foreign, bystander} {
		if err := c.RegisterService(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	second := runRegistrar(t, c, other, config.Service{Name: "theirs"}).ready()
	x := runRegistrar(t, c, o,
		config.Service{Name: "held", Port: 1, Checks: []config.Check{newScript(t, 0).check()}},
		config.Service{Name: "theirs", Port: 1}, config.Service{Name: "mine"}).ready()
	wantServices(t, c, "held", "bystander", "theirs", "mine")
	wantError(t, x, "held", "another program than jorc", "jorc service deregister held")
	wantError(t, x, "theirs", "another jorc ("+second.o.Owner+")")
	if s := x.service("held"); s.Registered || s.Checks[0].Heartbeats > 0 {
		t.Errorf("status of a service that is not ours: %+v", s)
	}
	got, _, err := c.AgentService(t.Context(), "held", consul.Query{})
	if err != nil || got.Port != 99 {
		t.Errorf("the foreign service became %+v, %v", got, err)
	}

	// Without configured services only our registrations are removed.
	x.Reload(nil)
	wantServices(t, c, "held", "bystander", "theirs")
	consultest.Eventually(t, "the status to have nothing but the agent's presence", func(context.Context) error {
		if left := x.Status(); len(left) != 1 || !left[0].Presence {
			return fmt.Errorf("status: %+v", left)
		}
		return nil
	})
	// The service is registered as soon as the other one is gone.
	x.Reload([]config.Service{{Name: "held", Port: 1}})
	wantError(t, x, "held", "another program")
	if err := c.DeregisterService(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "held to become ours", func(ctx context.Context) error {
		got, _, err := c.AgentService(ctx, "held", consul.Query{})
		if err == nil && got.Port != 1 {
			err = fmt.Errorf("port %d", got.Port)
		}
		return err
	})
}

func TestWhatLeftTheConfigurationWhileStoppedGoes(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	o := fast(t)
	runRegistrar(t, c, o, config.Service{Name: "stays"}, config.Service{Name: "goes"}).ready().end()
	wantServices(t, c, "stays", "goes")
	runRegistrar(t, c, o, config.Service{Name: "stays"}).ready()
	wantServices(t, c, "stays")
}

func TestForeignChecksAndMaintenanceSurviveAChange(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	web := config.Service{Name: "web", Checks: []config.Check{{ID: "old", TTL: time.Hour}}}
	x := runRegistrar(t, c, fast(t), web).ready()
	wantServices(t, c, "web")
	if err := c.SetMaintenance(t.Context(), "web", true, "disk is being replaced"); err != nil {
		t.Fatal(err)
	}
	web.Checks[0].ID = "new"
	web.Port = 5
	x.Reload([]config.Service{web})
	consultest.Eventually(t, "the checks to be replaced", func(ctx context.Context) error {
		checks, err := c.AgentChecks(ctx, `ServiceID == "web"`)
		if err == nil && (checks["new"] == nil || checks["old"] != nil) {
			err = fmt.Errorf("checks: %v", checks)
		}
		return err
	})
	got := wantState(t, c, maintenanceCheck("web"), consul.HealthCritical)
	if got.Notes != "disk is being replaced" {
		t.Errorf("notes %q", got.Notes)
	}
}

func TestOnStop(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t).Client()
	o := fast(t)
	o.OnStop = OnStopMaintenance
	services := []config.Service{
		{Name: "maint"}, {Name: "manual"}, {Name: "gone", OnStop: OnStopDeregister}, {Name: "kept", OnStop: OnStopKeep},
	}
	x := runRegistrar(t, c, o, services...).ready()
	wantServices(t, c, "maint", "manual", "gone", "kept")
	if err := c.SetMaintenance(t.Context(), "manual", true, "by hand"); err != nil {
		t.Fatal(err)
	}
	x.end()
	wantServices(t, c, "maint", "manual", "kept")
	maintained := func() map[string]string {
		checks, err := c.AgentChecks(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		notes := map[string]string{}
		for id, check := range checks {
			if strings.HasPrefix(id, "_service_maintenance:") {
				notes[check.ServiceID] = check.Notes
			}
		}
		return notes
	}
	if got, want := maintained(), map[string]string{"maint": stopNote, "manual": "by hand"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after the stop: %v, want %v", got, want)
	}

	x = runRegistrar(t, c, o, services...).ready()
	x.SetOnStop(OnStopDeregister)
	wantServices(t, c, "maint", "manual", "gone", "kept")
	if got, want := maintained(), map[string]string{"manual": "by hand"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after the next start: %v, want %v", got, want)
	}
	x.end()
	wantServices(t, c, "kept")
	if _, _, err := c.AgentService(t.Context(), "jorc", consul.Query{}); !errors.Is(err, consul.ErrNotFound) {
		t.Errorf("jorc's own service: %v, want %v", err, consul.ErrNotFound)
	}
}

func TestStopEndsAlthoughConsulIsFrozen(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	o := fast(t)
	o.OnStop = OnStopDeregister
	x := runRegistrar(t, s.Client(), o, config.Service{Name: "web", Checks: []config.Check{newScript(t, 0).check()}}).ready()
	s.Freeze()
	x.end()
	s.Thaw()
	wantServices(t, s.Client(), "web")
}

func TestMissingRightsConcernOneServiceOnly(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	tokens := filepath.Join(t.TempDir(), "token")
	write := func(rules string) {
		t.Helper()
		if err := os.WriteFile(tokens, []byte(s.NewToken(rules)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	some := `service "web" { policy = "write" } service "jorc" { policy = "write" }`
	write(some)
	conf := s.Config()
	conf.Token, conf.TokenFile = "", tokens
	c, err := consul.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	x := runRegistrar(t, c, fast(t), config.Service{Name: "db"},
		config.Service{Name: "web", Checks: []config.Check{newScript(t, 0).check()}}).ready()
	wantServices(t, s.Client(), "web")
	wantError(t, x, "db", `"db"`, "service:write", "denied")
	wantState(t, s.Client(), "service:web", consul.HealthPassing)
	// Without the right to read nodes it still notices lost registrations.
	if err := s.Client().DeregisterService(t.Context(), "jorc"); err != nil {
		t.Fatal(err)
	}
	wantState(t, s.Client(), "service:jorc", consul.HealthPassing)

	write(some + ` service "db" { policy = "write" }`)
	wantServices(t, s.Client(), "web", "db")
	wantError(t, x, "db", "")
}

func TestScriptsRunWhileConsulIsAway(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	s.Kill()
	check := newScript(t, 1)
	x := runRegistrar(t, s.Client(), fast(t), config.Service{Name: "web", Checks: []config.Check{check.check()}})
	consultest.Eventually(t, "the script to have run twice", func(context.Context) error {
		if got := x.service("web"); len(got.Checks) == 0 || got.Checks[0].Runs < 2 || got.Checks[0].State != consul.HealthWarning || got.Error == "" {
			return fmt.Errorf("status %+v", got)
		}
		return nil
	})
	s.Restart()
	x.ready()
	wantState(t, s.Client(), "service:web", consul.HealthWarning)
	wantError(t, x, "web", "")

	// A change during an outage is sent when the outage is over.
	s.Freeze()
	check.set(t, 0)
	consultest.Eventually(t, "the script to pass", func(context.Context) error {
		if got := x.service("web"); got.Checks[0].State != consul.HealthPassing {
			return fmt.Errorf("status %+v", got)
		}
		return nil
	})
	s.Thaw()
	wantState(t, s.Client(), "service:web", consul.HealthPassing)
}

func TestRegistersWithoutALeader(t *testing.T) {
	t.Parallel()
	// While an agent waits for a leader, its own state is locked: for Consul's
	// default of 7 s each time.
	servers := consultest.StartCluster(t, 3, consultest.WithConfig(map[string]any{
		"performance": map[string]any{"raft_multiplier": 1, "rpc_hold_timeout": "200ms"},
	}))
	c := servers[0].Client()
	servers[1].Kill()
	servers[2].Kill()
	consultest.Eventually(t, "the leader to be lost", func(ctx context.Context) error {
		if leader, err := c.Leader(ctx); err == nil && leader != "" {
			return fmt.Errorf("leader %s", leader)
		}
		return nil
	})
	x := runRegistrar(t, c, fast(t), config.Service{Name: "web", Checks: []config.Check{newScript(t, 0).check()}}).ready()
	wantState(t, c, "service:web", consul.HealthPassing)
	if err := c.DeregisterService(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	wantState(t, c, "service:web", consul.HealthPassing)
	x.heartbeats(3)
	servers[1].Restart()
	consultest.Eventually(t, "the catalog to know it", func(ctx context.Context) error {
		got, _, err := c.HealthService(ctx, "web", "", true, consul.Query{})
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d instances", len(got))
		}
		return err
	})
}
