package catalog

import (
	"context"
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

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

	// What changes during an outage is told when it is over.
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
	// While an agent waits for a leader its own state is locked: with Consul's
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
