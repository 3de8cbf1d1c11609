package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/slots"
)

func TestDecommission(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	host(t, s, "dead", "critical")
	host(t, s, "logical", "")
	for _, n := range []string{s.Node, "dead", "dead2"} {
		mustReport(t, l, n, "v1")
		mustState(t, l, n, cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateSuccess})
	}
	clustertest.WantIs(t, "Departed of a living host", l.CheckDeparted(t.Context(), s.Node), cluster.ErrAlive)
	for _, n := range []string{"dead", "gone", "logical"} {
		if err := l.CheckDeparted(t.Context(), n); err != nil {
			t.Errorf("Departed(%s) = %v", n, err)
		}
	}
	put(t, s, "jorc/default/running_version/v7/dead", "x")
	put(t, s, "jorc/default/status/config/failed/dead", "x")
	put(t, s, "jorc/default/host/dead/results", `{"format":1}`)
	groups := slots.New(nodesStore(s), slots.Options{})
	for _, g := range []string{"edge", "update"} {
		lease, err := groups.Acquire(t.Context(), g, 1, slots.Holder{Node: "dead", Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lease.Release(context.Background()) }) // it was lost
	}
	removed, freed, err := l.Decommission(t.Context(), "dead")
	if err != nil || len(removed) != 6 || len(freed) != 2 || !strings.HasPrefix(freed[0], "edge/") || !strings.HasPrefix(freed[1], "update/") {
		t.Errorf("Decommission = %v, %v, %v", removed, freed, err)
	}
	for key := range keys(t, s.Client(), "jorc/default/") {
		if strings.HasSuffix(key, "/dead") || strings.Contains(key, "/dead/") {
			t.Errorf("%s is left", key)
		}
	}
	wantWhole(t, s, "dead2")
	unwritten(t, s, "decommissioning again", func() {
		if removed, _, err := l.Decommission(t.Context(), "dead"); err != nil || len(removed) > 0 {
			t.Errorf("again: %v, %v", removed, err)
		}
	})
	for i := range 150 {
		put(t, s, fmt.Sprintf("jorc/default/running_version/x%d/dead2", i), "x")
	}
	if removed, _, err := l.Decommission(t.Context(), "dead2"); err != nil || len(removed) != 153 {
		t.Errorf("many keys: %d, %v", len(removed), err)
	}
	wantIndex(t, s, "jorc/default/", "dead2")
}

// TestRacingDecommission: reports while a host is decommissioned leave it
// whole, or leave nothing of it.
func TestRacingDecommission(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	for i := range 20 {
		mustReport(t, l, "n1", "v1")
		done := make(chan error, 1)
		go func() {
			_, err := l.ReportVersion(context.Background(), "n1", fmt.Sprintf("v%d", i))
			done <- err
		}()
		if _, _, err := l.Decommission(t.Context(), "n1"); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantWhole(t, s, "n1")
	}
}
