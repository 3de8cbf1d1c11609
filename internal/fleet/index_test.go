package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// TestForeignIndexKeys: index keys that another program plants never become part of what
// a node reports, and no answer of jorc's comes from them; a repair deletes them.
func TestForeignIndexKeys(t *testing.T) {
	t.Parallel()
	for name, planted := range map[string][]string{
		"a version":        {"running_version/v666/n2"},
		"a category":       {"status/validation/failed/n2"},
		"another state":    {"status/config/failed/n2"},
		"no state":         {"status/config/weird/n2"},
		"a bad version":    {"running_version/v 7/n2"},
		"all at one time":  {"running_version/v666/n2", "status/validation/failed/n2", "status/provisioned/success/n2"},
		"without a report": {"running_version/v666/n3", "status/validation/failed/n3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, s := newLedger(t)
			mustReport(t, l, "n1", "v1")
			mustReport(t, l, "n2", "v1")
			mustState(t, l, "n2", "config", cluster.CategoryState{State: cluster.StateSuccess})
			for _, key := range planted {
				s.Plant("jorc/default/"+key, `{"since":"2026-01-01T00:00:00Z","detail":"x"}`)
			}
			mustState(t, l, "n2", "config", cluster.CategoryState{State: cluster.StateRunning})
			mustReport(t, l, "n2", "v2")
			d := mustDocument(t, l, "n2")
			if d.Version != "v2" || d.Previous != "v1" || len(d.States) != 1 || d.States["config"].State != cluster.StateRunning {
				t.Errorf("n2 reports %+v", d)
			}
			if versions := reports(t, l).RunningVersions(); !slices.Equal(versions, []string{"v1", "v2"}) {
				t.Errorf("Running = %v", versions)
			}
			if failures, err := l.Failures(t.Context(), true); err != nil || len(failures) > 0 {
				t.Errorf("Failures = %+v, %v", failures, err)
			}
			if _, err := l.Repair(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantWhole(t, s, "n2")
		})
	}
}

// TestRepair: a repair makes the index keys what the documents say, restores a
// damaged document from them, and leaves alone what is not jorc's.
func TestRepair(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustReport(t, l, "n1", "v1")
	mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess})
	mustReport(t, l, "n2", "v1")
	mustReport(t, l, "fine", "v1")
	put(t, s, "jorc/default/nodes/n1", "not JSON")
	for i := range 100 {
		put(t, s, fmt.Sprintf("jorc/default/running_version/x%d/n2", i), "x")
	}
	if err := s.Client().KVDeleteTree(t.Context(), "jorc/default/running_version/v1/n2"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "jorc/default/running_version/v1/script", "x")
	put(t, s, "jorc/default/status/odd", "x")
	r, err := l.Repair(t.Context())
	if err != nil || !slices.Equal(r.Fixed, []string{"n1", "n2"}) || !slices.Equal(r.Orphans, []string{"script"}) || !slices.Equal(r.Strange, []string{"status/odd"}) {
		t.Errorf("Repair = %+v, %v", r, err)
	}
	for _, node := range []string{"n1", "n2", "fine"} {
		wantWhole(t, s, node)
	}
	if d := mustDocument(t, l, "n1"); d.Version != "v1" || d.States["config"].State != cluster.StateSuccess {
		t.Errorf("the damaged document is now %+v", d)
	}
	if r, err := l.Repair(t.Context()); err != nil || len(r.Fixed) > 0 {
		t.Errorf("again: Repair = %+v, %v", r, err)
	}
}

// TestProjector: where nodes may not write index keys the holder of a lock does,
// and deletes the ones that others planted.
func TestProjector(t *testing.T) {
	t.Parallel()
	root, s := newLedger(t, consultest.WithACL())
	put(t, s, "jorc/default/running_version/v666/n1", "x")
	put(t, s, "jorc/default/running_version/v1/script", "x")
	node := fleet.New(s.ClientWithToken(s.NewToken(`key_prefix "jorc/default/" { policy = "read" } key "jorc/default/nodes/n1" { policy = "write" }`)), "jorc", "default")
	held, err := nodesStore(s).Lock(t.Context(), "orchestrate/lock", kv.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := root.NewProjector(held.Store())
	project := func() error {
		documents, err := root.Reports().List(t.Context())
		if err != nil {
			return err
		}
		return p.Project(t.Context(), documents)
	}
	for _, version := range []string{"v1", "v2"} {
		mustReport(t, node, "n1", version)
		mustState(t, node, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess, Detail: version})
		if err := project(); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, s, "n1")
	}
	wantIndex(t, s, "jorc/default/", "script", "running_version/v1/script")
	unwritten(t, s, "projecting what is known", func() {
		if err := project(); err != nil {
			t.Fatal(err)
		}
	})
	if _, _, err := root.Decommission(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	if err := project(); err != nil {
		t.Fatal(err)
	}
	wantIndex(t, s, "jorc/default/", "n1")
	mustReport(t, node, "n1", "v3")
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := project(); !errors.Is(err, kv.ErrLockLost) && !errors.Is(err, kv.ErrConflict) {
		t.Errorf("projecting without the lock: %v", err)
	}
}

func TestNewerDocuments(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	newer := `{"format":2,"version":{"name":"v1"}}`
	put(t, s, "jorc/default/nodes/n1", newer)
	_, err := l.ReportVersion(t.Context(), "n1", "v2")
	clustertest.WantIs(t, "Report over a newer format", err, kv.ErrNewer)
	_, _, err = l.Report(t.Context(), "n1")
	clustertest.WantIs(t, "Document of a newer format", err, kv.ErrNewer)
	put(t, s, "jorc/default/nodes/n2", `{"format":1,"version":"v1","hue":{"a":1}}`)
	mustReport(t, l, "n2", "v2")
	all := keys(t, s.Client(), "jorc/default/")
	if all["nodes/n1"] != newer {
		t.Errorf("it was overwritten: %s", all["nodes/n1"])
	}
	if got := all["nodes/n2"]; got[:len(`{"format":1,"hue":{"a":1},"version":"v2"`)] != `{"format":1,"hue":{"a":1},"version":"v2"` {
		t.Errorf("what a newer jorc wrote is gone: %s", got)
	}
	r, err := l.Repair(t.Context())
	if err != nil || len(r.Strange) != 1 || r.Strange[0] != "nodes/n1" {
		t.Errorf("Repair = %+v, %v", r, err)
	}
}
