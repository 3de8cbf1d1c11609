package agent_test

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/converge"
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
