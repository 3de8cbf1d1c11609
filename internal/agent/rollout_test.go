package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

const rolloutConf = `
service "web" { port = 80 }
member {}
orchestrator { interval = "1s" }
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "until [ -e DIR/{{ .Version }} ]; do sleep 0.05; done" }
}
workflow "note" {
  task "note" { script = "echo {{ .Param \"what\" }} >>DIR/noted" }
}
`

func (h *host) rollouts() *rollout.Rollouts { return rollout.New(h.client, "jorc", "default") }

// maintenance is what the node's maintenance mode says; empty: it is in service.
func (h *host) maintenance() string {
	h.t.Helper()
	all, err := h.client.AgentChecks(h.t.Context(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	if c := all["_node_maintenance"]; c != nil {
		return c.Notes
	}
	return ""
}

// TestRollout: an agent that orchestrates its own cluster grants the host its version; the host
// is out of service in Consul until it has converged and been healthy.
func TestRollout(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), rolloutConf)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantServices("jorc", "web")
	h.wantRecord("the record", func(cluster.Record) bool { return true })
	policy := func(p *pace.Policy) {
		p.MaxParallel = pace.Amount{N: 1}
		p.MinHealthy = pace.Duration(100 * time.Millisecond)
	}
	if _, err := h.rollouts().Trigger(t.Context(), rollout.Request{Version: "v1", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	h.eventually("maintenance", func() error { return contains(h.maintenance(), "jorc: update to v1") })
	h.write("v1", "")
	h.wantVersion("v1")
	h.eventually("the end", func() error {
		s, err := h.rollouts().Show(t.Context())
		if err == nil && s.Phase != pace.Done {
			err = fmt.Errorf("got %+v", s)
		}
		return err
	})
	if m := h.maintenance(); m != "" {
		t.Errorf("the host is still in maintenance: %s", m)
	}
	d, _, err := fleet.New(h.client, "jorc", "default").Report(t.Context(), h.server.Node)
	if err != nil || d.Answered(cluster.VersionChange).State != cluster.GrantDone || d.Answered(cluster.VersionChange).Tag != "v1" {
		t.Errorf("the host says of its grant %+v, %v", d.Answered(cluster.VersionChange), err)
	}
	h.eventually("the status", func() error {
		for _, o := range h.agent.Status().Orchestrators {
			if o.Active && o.Cluster == "default" && o.Synced == 1 && o.Failed == 0 {
				return nil
			}
		}
		return fmt.Errorf("got %+v", h.agent.Status().Orchestrators)
	})
	if strings.Contains(h.log.String(), "[ERROR]") {
		t.Errorf("the log has errors")
	}
}

// TestRolloutWithoutOrchestrator: a host that waits for a grant reports that no
// orchestrator runs, and no longer once one does.
func TestRolloutWithoutOrchestrator(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
version_file = "DIR/version"
member {}
static { workflow = "converge" }
workflow "converge" {
  task "nothing" { command = ["true"] }
}
`)
	if _, err := h.cluster().Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.wantRecord("the record", func(cluster.Record) bool { return true })
	policy := func(p *pace.Policy) { p.MaxParallel = pace.Amount{N: 1} }
	if _, err := h.rollouts().Trigger(t.Context(), rollout.Request{Version: "v1", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	report := func(want bool) func() error {
		return func() error {
			c := h.agent.Status().Convergence
			if c == nil || c.Unorchestrated != want || strings.Contains(strings.Join(c.Trouble, "\n"), "no orchestrator runs") != want {
				return fmt.Errorf("got %+v", c)
			}
			return nil
		}
	}
	h.eventually("the report that no orchestrator runs", report(true))
	lock, err := h.cluster().Store().Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{Holder: kv.Holder{Node: "another"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release(t.Context()) })
	h.eventually("the orchestrator to be seen", report(false))
}
