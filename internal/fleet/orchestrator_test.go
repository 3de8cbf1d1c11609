package fleet_test

import (
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// TestOrchestrator: the lock holder is returned; what cannot be read there is no
// orchestrator, unless a newer jorc wrote it.
func TestOrchestrator(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Initialized(t)
	want := func(what string, node string, orchestrated bool, is error) {
		t.Helper()
		h, held, err := fleet.Orchestrator(t.Context(), c.Store())
		if h.Node != node || held != orchestrated {
			t.Errorf("%s: Orchestrator = %+v, %v, %v", what, h, held, err)
		}
		clustertest.WantIs(t, what, err, is)
		if there, err := fleet.Orchestrated(t.Context(), c.Store()); there != orchestrated || err != nil {
			t.Errorf("%s: Orchestrated = %v, %v", what, there, err)
		}
	}
	want("nobody", "", false, nil)
	lock, err := c.Store().Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{Holder: kv.Holder{Node: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	want("n1", "n1", true, nil)
	for text, is := range map[string]error{`{"format":99}`: kv.ErrNewer, "nonsense": nil} {
		if _, err := c.Store().Txn().Set(cluster.OrchestratorLock, []byte(text)).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(text, "", is != nil, is)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("nobody any more", "", false, nil)
}
