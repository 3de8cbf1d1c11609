package agent_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/runs"
)

// TestJoinedByHand: a host that an operator joined, and whose configuration has no
// member block, works on runs and knows its workflows.
func TestJoinedByHand(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	h := newHost(t, s, `
workflow "hello" {
  task "say" { script = "echo \"$JORC_CLUSTER\" >>DIR/ran" }
}
`)
	c, all := h.cluster(), runs.New(h.cluster().Store())
	if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	h.orchestrated()
	h.start()
	if _, err := c.Join(t.Context(), s.Node, func(r cluster.Record) (cluster.Record, error) { return r, nil }); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		workflow, why string
		want          runs.State
	}{
		{"hello", "", runs.Done},
		{"helo", "hello", runs.Failed}, // the error names the known workflows
	} {
		if _, _, err := all.Ask(t.Context(), test.workflow, runs.Request{Workflow: test.workflow}, "me"); err != nil {
			t.Fatal(err)
		}
		h.eventually(test.workflow, func() error {
			d, err := all.Show(t.Context(), test.workflow)
			if err == nil && (d.State != test.want || len(d.Members) != 1 || !strings.Contains(d.Members[0].Why, test.why)) {
				err = fmt.Errorf("got %+v", d)
			}
			return err
		})
	}
	h.wantLines("ran", "default")
}

// orchestrated runs an orchestrator of runs, as on another host.
func (h *host) orchestrated() {
	h.t.Helper()
	o := orchestrator.New(orchestrator.Options{
		Client: h.server.Client(), Prefix: "jorc", Cluster: "default", Node: "boss", Interval: time.Second,
		Grants: true,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = o.Run(ctx) }) // nil, always
	h.t.Cleanup(func() { cancel(); running.Wait() })
}

// TestGuestClusters: a host that only orchestrates runs the workflows for managers
// of each of its clusters, because none of them has a manager. A pause of one
// cluster does not affect the other, and a run continues after a restart.
func TestGuestClusters(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
orchestrator {
  interval = "1s"
  clusters = ["other", "default"]
}
workflow "administer" {
  task "note" { script = "echo \"$JORC_CLUSTER\" >>DIR/ran-$JORC_CLUSTER" }
}
`)
	clusters := map[string]*fleet.Cluster{"default": h.cluster(), "other": fleet.New(h.client, "jorc", "other")}
	for _, c := range clusters {
		if _, err := c.Init(t.Context(), fleet.InitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := clusters["other"].Pause(t.Context(), cluster.Hold{Reason: "not yet"}); err != nil {
		t.Fatal(err)
	}
	ask := func(name string) {
		t.Helper()
		if _, _, err := runs.New(clusters[name].Store()).Ask(t.Context(), "r1", runs.Request{Workflow: "administer", OnManager: true}, "me"); err != nil {
			t.Fatal(err)
		}
	}
	wantState := func(name string, want runs.State) {
		t.Helper()
		h.eventually(name, func() error {
			d, err := runs.New(clusters[name].Store()).Show(t.Context(), "r1")
			if err == nil && (d.State != want || want == runs.Done && (len(d.Members) != 1 || d.Members[0].Node != h.server.Node)) {
				err = fmt.Errorf("got %+v", d)
			}
			return err
		})
	}
	ask("default")
	ask("other")
	h.start()
	wantState("default", runs.Done)
	h.wantLines("ran-default", "default")
	wantState("other", runs.Pending)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := clusters["other"].Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start()
	wantState("other", runs.Done)
	h.wantLines("ran-other", "other")
}

// TestTrigger: what changes in Consul runs a workflow of this host, which finds
// what it was in a file.
func TestTrigger(t *testing.T) {
	t.Parallel()
	h := newHost(t, consultest.Start(t), `
trigger "pool" {
  service  = "db"
  workflow = "note"
}
workflow "note" {
  task "note" { script = "cp \"$JORC_CHANGE\" DIR/change" }
}
`)
	h.start()
	h.eventually("a first look", func() error {
		_, err := os.Stat(h.path("state/triggers/pool.json"))
		return err
	})
	h.register("db")
	h.eventually("the change", func() error {
		data, err := os.ReadFile(h.path("change"))
		if err != nil {
			return err
		}
		return contains(string(data), fmt.Sprintf(`"item":"%s/db","change":"added"`, h.server.Node))
	})
}
