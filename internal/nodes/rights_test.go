package nodes_test

import (
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/nodes"
)

// TestRights: what a token may not see is never taken for what is not there.
func TestRights(t *testing.T) {
	t.Parallel()
	root, s := newLedger(t, consultest.WithACL())
	mustReport(t, root, "n1", "v1")
	mustState(t, root, "n1", "config", nodes.State{State: nodes.Failed})
	questions := map[string]func(*nodes.Ledger) error{
		"Desired":      func(l *nodes.Ledger) error { _, err := l.Desired(t.Context()); return err },
		"Running":      func(l *nodes.Ledger) error { _, err := l.Running(t.Context()); return err },
		"Hosts":        func(l *nodes.Ledger) error { _, err := l.Hosts(t.Context(), "v9"); return err },
		"Verify":       func(l *nodes.Ledger) error { _, err := l.Verify(t.Context(), "v1", []string{"n1"}); return err },
		"Single":       func(l *nodes.Ledger) error { _, err := l.Single(t.Context(), "v9"); return err },
		"Document":     func(l *nodes.Ledger) error { _, _, err := l.Document(t.Context(), "n1"); return err },
		"States":       func(l *nodes.Ledger) error { _, _, err := l.States(t.Context(), ""); return err },
		"Failures":     func(l *nodes.Ledger) error { _, err := l.Failures(t.Context(), false); return err },
		"Unaccounted":  func(l *nodes.Ledger) error { _, err := l.Unaccounted(t.Context()); return err },
		"Facts":        func(l *nodes.Ledger) error { _, err := l.Facts(t.Context(), "n1"); return err },
		"Departed":     func(l *nodes.Ledger) error { return l.Departed(t.Context(), "n1") },
		"Repair":       func(l *nodes.Ledger) error { _, err := l.Repair(t.Context()); return err },
		"Report":       func(l *nodes.Ledger) error { _, err := l.Report(t.Context(), "n1", "v2"); return err },
		"Decommission": func(l *nodes.Ledger) error { _, _, err := l.Decommission(t.Context(), "n1"); return err },
	}
	ledger := func(token string) *nodes.Ledger {
		return nodes.New(s.ClientWithToken(token), "jorc", "default")
	}
	half := `key_prefix "jorc/default/status/config/success/" { policy = "read" } key "jorc/default/running_version/v1/n2" { policy = "read" }`
	for who, token := range map[string]string{"nobody": "", "unknown": "99999999-0000-0000-0000-000000000000", "half": s.NewToken(half)} {
		for name, ask := range questions {
			wantIs(t, name+" by "+who, ask(ledger(token)), consul.ErrDenied)
		}
	}
	wantWhole(t, s, "n1")
	reader := ledger(s.NewToken(`key_prefix "jorc/default/" { policy = "read" } node_prefix "" { policy = "read" } service_prefix "" { policy = "read" }`))
	for name, ask := range questions {
		want := error(nil)
		if slices.Contains([]string{"Report", "Trigger", "Decommission"}, name) {
			want = consul.ErrDenied
		}
		wantIs(t, name+" by a reader", ask(reader), want)
	}
	host := ledger(s.NewToken(`key_prefix "jorc/default/" { policy = "read" } key "jorc/default/nodes/n1" { policy = "write" }
		key_prefix "jorc/default/running_version/" { policy = "write" } key_prefix "jorc/default/status/" { policy = "write" }`))
	mustReport(t, host, "n1", "v2")
	mustState(t, host, "n1", "config", nodes.State{State: nodes.Success})
	_, err := host.Report(t.Context(), "n2", "v2")
	wantIs(t, "a host that speaks for another", err, consul.ErrDenied)
	wantWhole(t, s, "n1")
	wantWhole(t, s, "n2")
}
