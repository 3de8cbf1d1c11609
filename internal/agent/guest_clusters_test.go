package agent_test

import (
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/runs"
)

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
	clusters := map[string]*cluster.Cluster{"default": h.cluster(), "other": cluster.New(h.client, "jorc", "other")}
	for _, c := range clusters {
		if _, err := c.Init(t.Context(), cluster.InitOptions{}); err != nil {
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
