package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
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
	if _, err := c.Init(t.Context(), cluster.InitOptions{}); err != nil {
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
		Deciders: []orchestrator.Decider{orchestrator.ForRuns(runs.NewDecider(0, nil), "boss")},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = o.Run(ctx) }) // nil, always
	h.t.Cleanup(func() { cancel(); running.Wait() })
}
