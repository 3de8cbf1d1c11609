package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/web"
)

func (h *host) ledger() *fleet.Cluster { return fleet.New(h.client, "jorc", "default") }

func (h *host) trigger(version string) {
	h.t.Helper()
	if _, err := h.rollouts().Trigger(h.t.Context(), rollout.Request{Version: version}); err != nil {
		h.t.Fatal(err)
	}
}

// wantVersion waits until the host has reported a version.
func (h *host) wantVersion(version string) cluster.Report {
	h.t.Helper()
	var d cluster.Report
	h.eventually("version "+version, func() error {
		var err error
		d, _, err = h.ledger().Report(h.t.Context(), h.server.Node)
		if err == nil && d.Version != version {
			err = fmt.Errorf("got %+v", d)
		}
		return err
	})
	return d
}

// wantPhase waits until the host converges as wanted.
func (h *host) wantPhase(phase converge.Phase, detail string) {
	h.t.Helper()
	h.eventually("phase "+string(phase), func() error {
		c := h.agent.Status().Convergence
		if c == nil || c.Phase != string(phase) || !strings.Contains(c.Detail, detail) {
			return fmt.Errorf("got %+v", c)
		}
		return nil
	})
}

const staticConf = `
service "web" { port = 80 }
requires "mysql" {}
member { roles = ["web"] }
static {
  workflow   = "converge"
  validation = "validate"
}
workflow "converge" {
  task "apply" { script = "echo {{ .Version }} >>DIR/applied" }
}
workflow "validate" {
  task "look" { command = ["test", "-e", "DIR/applied"] }
}
template "t" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/t"
}
`

// TestConverge: a version waits for what static configuration requires while
// services and templates continue, is held, applied once, and followed by the next.
func TestConverge(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), staticConf)
	h.put("k", "1")
	h.trigger("v1")
	h.start()
	h.wantServices("jorc", "web")
	h.wantFile("t", "1")
	h.wantPhase(converge.PhasePending, "mysql: 0 of 1 functional")
	if _, err := h.cluster().Hold(t.Context(), cluster.Scope{Role: "web"}, cluster.Hold{Reason: "the moon", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	h.wantPhase(converge.PhaseHeld, " by ann: the moon")
	h.register("mysql")
	if _, err := h.cluster().Unhold(t.Context(), cluster.Scope{Role: "web"}, cluster.Hold{}); err != nil {
		t.Fatal(err)
	}
	if d := h.wantVersion("v1"); d.States["config"].State != cluster.StateSuccess || d.States["validation"].State != cluster.StateSuccess {
		t.Errorf("got %+v", d)
	}
	h.wantPhase(converge.PhaseConverged, "")
	h.trigger("v2")
	h.wantVersion("v2")
	h.wantLines("applied", "v1", "v2")
	h.put("k", "2")
	h.wantFile("t", "2") // dynamic configuration does not run the static workflow
	h.wantLines("applied", "v1", "v2")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantPhase(converge.PhaseConverged, "")
	h.wantLines("applied", "v1", "v2")
}

// TestConvergeBesideADeadAgent: the presence service that an agent of another
// cluster left on this host does not affect convergence.
func TestConvergeBesideADeadAgent(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), strings.Replace(staticConf, `requires "mysql" {}`, "", 1))
	h.put("k", "1")
	err := h.client.RegisterService(t.Context(), &consul.ServiceRegistration{
		ID: catalog.PresenceID("other"), Name: "jorc", Check: &consul.ServiceCheck{Name: "jorc agent", TTL: "1h", Status: consul.HealthCritical},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.trigger("v1")
	h.start()
	h.wantVersion("v1")
	h.wantLines("applied", "v1")
}

func (h *host) register(name string) {
	h.t.Helper()
	err := h.client.RegisterService(h.t.Context(), &consul.ServiceRegistration{ID: name, Name: name, Port: 1, Address: h.server.IP})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestOnceConverges: one pass tells how convergence ended.
func TestOnceConverges(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), staticConf)
	h.put("k", "1")
	h.trigger("v1")
	once := func() error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return h.make().Once(ctx)
	}
	a := h.make()
	err := endWhen(t, a, func(s web.Status) bool {
		return s.Convergence != nil && s.Convergence.Phase == string(converge.PhasePending) && strings.Contains(s.Convergence.Detail, "mysql")
	}, a.Once)
	if !errors.Is(err, converge.ErrPending) || !strings.Contains(err.Error(), "mysql") {
		t.Errorf("got %v, want what is missing", err)
	}
	h.register("mysql")
	h.write("state/hold", "by hand")
	if err := once(); !errors.Is(err, converge.ErrHeld) || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("got %v, want ErrHeld", err)
	}
	if err := os.Remove(h.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	if err := once(); err != nil {
		t.Errorf("got %v", err)
	}
	h.wantVersion("v1")
	h.wantLines("applied", "v1")
	h.configure(strings.Replace(staticConf, `"echo {{`, `"exit 3 # {{`, 1))
	h.trigger("v2")
	if err := once(); !errors.Is(err, converge.ErrFailed) || !strings.Contains(err.Error(), "apply") {
		t.Errorf("got %v, want ErrFailed of task apply", err)
	}
	h.wantVersion("v1")
}
