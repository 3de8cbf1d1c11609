package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/rollout"
)

const twoTasks = `
member { zone = "one" }
static { workflow = "converge" }
workflow "converge" {
  task "first" { script = "echo first >>DIR/ran; until [ -e DIR/go ]; do sleep 0.02; done" }
  task "second" { script = "echo second >>DIR/ran" }
}
`

// TestReloadBetweenTasks: a reload waits for the task that runs, and the job
// continues with the new configuration.
func TestReloadBetweenTasks(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), twoTasks)
	h.trigger("v1")
	h.start()
	h.wantLines("ran", "first")
	h.configure(strings.Replace(twoTasks, `"one"`, `"two"`, 1))
	if got := h.reload(); !got.OK {
		t.Fatalf("got %+v", got)
	}
	h.configure(strings.Replace(twoTasks, `"one"`, `"three"`, 1))
	if got := h.reload(); !got.OK { // while the first one still waits for the task
		t.Fatalf("got %+v", got)
	}
	h.wantPhase(converge.PhaseStatic, "")
	h.write("go", "")
	h.wantVersion("v1")
	h.wantLines("ran", "first", "second")
	h.wantRecord("the last configuration", func(r cluster.Record) bool { return r.Zone == "three" })
	h.trigger("v2")
	h.wantVersion("v2")
	h.wantLines("ran", "first", "second", "first", "second")
}

// TestClusterRemoved: a configuration without the host's part in its cluster ends
// that part; services and templates continue.
func TestClusterRemoved(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), "service \"web\" { port = 80 }\n"+twoTasks)
	h.write("go", "")
	h.trigger("v1")
	h.start()
	h.wantVersion("v1")
	h.configure("service \"web\" { port = 81 }\n")
	if got := h.reload(); !got.OK {
		t.Fatalf("got %+v", got)
	}
	h.eventually("the end of convergence", func() error {
		if c := h.agent.Status().Convergence; c != nil {
			return contains("", c.Phase)
		}
		return nil
	})
	h.trigger("v2")
	h.wantServices("jorc", "web")
	h.wantLines("ran", "first", "second")
}

// noted is a node's maintenance that is only remembered.
type noted struct {
	mu    sync.Mutex
	calls []string
}

func (n *noted) add(call string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, call)
	return nil
}

func (n *noted) Begin(_ context.Context, reason string) error { return n.add(reason) }
func (n *noted) Lift(context.Context) error                   { return n.add("lifted") }

// TestSimulate: a host that has no Consul agent of its own joins and converges,
// and nothing is registered with the agent that it asks.
func TestSimulate(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	client := server.Client()
	dir := t.TempDir()
	m := &noted{}
	s, err := agent.Simulate(agent.SimulatedOptions{Client: client, Maintenance: m, Config: &config.Config{
		Cluster: "default", Prefix: "jorc", Node: "simulated", StateDir: dir, VersionFile: filepath.Join(dir, "version"),
		DNS: config.DNS{Addr: server.DNSAddr}, Member: &config.Member{Zone: "z1"}, Static: &config.Static{Workflow: "converge"},
		Workflows: []config.Workflow{{Name: "converge", Tasks: []config.Task{{Name: "nothing", Command: []string{"true"}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.New(client, "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	if _, err := rollout.New(client, "jorc", "default").Trigger(t.Context(), rollout.Request{Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	consultest.Eventually(t, "the version", func(ctx context.Context) error {
		d, _, err := fleet.New(client, "jorc", "default").Report(ctx, "simulated")
		if err == nil {
			err = contains(d.Version, "v1")
		}
		return err
	})
	if v := s.Convergence().Version; v != "v1" {
		t.Errorf("it converged to %q, want v1", v)
	}
	if all, err := client.AgentServices(t.Context(), ""); err != nil || len(all) > 0 {
		t.Errorf("services of the agent = %v, %v; want none", all, err)
	}
	members, err := fleet.New(client, "jorc", "default").Members(t.Context(), fleet.MembersOptions{})
	if err != nil || len(members) != 1 || members[0].Zone != "z1" {
		t.Errorf("members = %+v, %v", members, err)
	}
}
