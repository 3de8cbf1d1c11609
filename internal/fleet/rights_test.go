package fleet_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
)

// TestRights: what a token may not see is never taken for what is not there.
func TestRights(t *testing.T) {
	t.Parallel()
	root, s := newLedger(t, consultest.WithACL())
	mustReport(t, root, "n1", "v1")
	mustState(t, root, "n1", "config", cluster.CategoryState{State: cluster.StateFailed})
	questions := map[string]func(*fleet.Cluster) error{
		"Desired":  func(l *fleet.Cluster) error { _, err := l.Desired(t.Context()); return err },
		"Running":  func(l *fleet.Cluster) error { _, err := l.LoadReports(t.Context()); return err },
		"Single":   func(l *fleet.Cluster) error { _, err := l.UniqueVersion(t.Context(), "v9"); return err },
		"Document": func(l *fleet.Cluster) error { _, _, err := l.Report(t.Context(), "n1"); return err },
		"States":   func(l *fleet.Cluster) error { _, err := l.LoadReport(t.Context(), "n1"); return err },
		"Failures": func(l *fleet.Cluster) error { _, err := l.Failures(t.Context(), false); return err },
		"Unaccounted": func(l *fleet.Cluster) error {
			_, err := l.Unaccounted(t.Context(), cluster.DefaultReportTTL())
			return err
		},
		"Facts":        func(l *fleet.Cluster) error { _, err := l.WhyFacts(t.Context(), "n1"); return err },
		"Departed":     func(l *fleet.Cluster) error { return l.CheckDeparted(t.Context(), "n1") },
		"Repair":       func(l *fleet.Cluster) error { _, err := l.Repair(t.Context()); return err },
		"Report":       func(l *fleet.Cluster) error { _, err := l.ReportVersion(t.Context(), "n1", "v2"); return err },
		"Decommission": func(l *fleet.Cluster) error { _, _, err := l.Decommission(t.Context(), "n1"); return err },
	}
	ledger := func(token string) *fleet.Cluster {
		return fleet.New(s.ClientWithToken(token), "jorc", "default")
	}
	half := `key_prefix "jorc/default/status/config/success/" { policy = "read" } key "jorc/default/running_version/v1/n2" { policy = "read" }`
	for who, token := range map[string]string{"nobody": "", "unknown": "99999999-0000-0000-0000-000000000000", "half": s.NewToken(half)} {
		for name, ask := range questions {
			clustertest.WantIs(t, name+" by "+who, ask(ledger(token)), consul.ErrDenied)
		}
	}
	wantWhole(t, s, "n1")
	reader := ledger(s.NewToken(`key_prefix "jorc/default/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`))
	for name, ask := range questions {
		want := error(nil)
		if slices.Contains([]string{"Report", "Trigger", "Decommission"}, name) {
			want = consul.ErrDenied
		}
		clustertest.WantIs(t, name+" by a reader", ask(reader), want)
	}
	host := ledger(s.NewToken(`key_prefix "jorc/default/" { policy = "read" } key "jorc/default/nodes/n1" { policy = "write" }
		key_prefix "jorc/default/running_version/" { policy = "write" } key_prefix "jorc/default/status/" { policy = "write" }`))
	mustReport(t, host, "n1", "v2")
	mustState(t, host, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess})
	_, err := host.ReportVersion(t.Context(), "n2", "v2")
	clustertest.WantIs(t, "a host that speaks for another", err, consul.ErrDenied)
	wantWhole(t, s, "n1")
	wantWhole(t, s, "n2")
}

func TestDesired(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	if v, err := l.Desired(t.Context()); v != "" || err != nil {
		t.Errorf("before any trigger: %q, %v", v, err)
	}
	put(t, s, "jorc/default/current_version", " v3\n")
	if v, err := l.Desired(t.Context()); v != "v3" || err != nil {
		t.Errorf("written by hand: %q, %v", v, err)
	}
	put(t, s, "jorc/default/current_version", "no version")
	_, err := l.Desired(t.Context())
	clustertest.WantIs(t, "rubbish", err, kv.ErrDamaged)
}

func TestWatchDesired(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string)
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = l.WatchDesired(ctx, func(v string, err error) { // ends with ctx
			if err != nil {
				v = "error"
			}
			select {
			case seen <- v:
			case <-ctx.Done():
			}
		})
	})
	for _, step := range []struct{ put, want string }{{"", ""}, {"v1", "v1"}, {"a b", "error"}, {"v2\n", "v2"}} {
		if step.put != "" {
			put(t, s, "jorc/default/current_version", step.put)
		}
		if got := <-seen; got != step.want {
			t.Errorf("after %q: %q, want %q", step.put, got, step.want)
		}
	}
	cancel()
	watching.Wait()
}
