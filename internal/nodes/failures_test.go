package nodes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/slots"
)

// check puts a check of a host into the catalog.
func check(t testing.TB, s *server, node, id, status, service, notes string) {
	t.Helper()
	r := &consul.CatalogRegistration{Node: node, Address: "10.9.9.9", SkipNodeUpdate: true, Check: &consul.AgentCheck{
		Node: node, CheckID: id, Name: id, Status: status, ServiceID: service, Output: id + " is " + status, Notes: notes,
	}}
	if service != "" {
		r.Service = &consul.AgentService{ID: service, Service: service}
	}
	if err := s.Client().CatalogRegister(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	want := func(warnings bool, want ...string) {
		t.Helper()
		all, err := l.Failures(t.Context(), warnings)
		var got []string
		for _, f := range all {
			got = append(got, fmt.Sprintf("%s %s %s %s: %s", f.Host, f.Kind, f.Name, f.State, f.Detail))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Failures(%v)\ngot  %q, %v\nwant %q", warnings, got, err, want)
		}
	}
	want(true)
	for _, n := range []string{"n1", "n2", "n3"} {
		host(t, s, n, "")
	}
	mustState(t, l, "n1", "config", nodes.State{State: nodes.Failed, Detail: "task puppet"})
	mustState(t, l, "n1", "validation", nodes.State{State: nodes.Pending})
	mustState(t, l, "n1", "backup", nodes.State{State: nodes.Failed})
	mustState(t, l, "n2", "config", nodes.State{State: nodes.Success, Suspect: "passed at attempt 2 of 3"})
	put(t, s, "jorc/default/status/puppet/failed/n3", "1730000000") // by an old script
	check(t, s, "n2", "disk", "critical", "", "")
	check(t, s, "n2", "load", "warning", "", "")
	check(t, s, "n3", "web", "passing", "web", "")
	check(t, s, "n1", "_node_maintenance", "critical", "", "upgrade by hand")
	check(t, s, "n2", "_service_maintenance:web", "critical", "web", "jorc: updating")
	failed := []string{
		"n1 state backup failed: ", "n1 state config failed: task puppet",
		"n1 check _node_maintenance maintenance: upgrade by hand",
		"n2 check disk critical: disk is critical", "n3 state puppet failed: ",
	}
	want(false, failed...)
	with := slices.Insert(slices.Clone(failed), 3, "n2 state config suspect: passed at attempt 2 of 3")
	with = slices.Insert(with, 5, "n2 check load warning: load is warning")
	want(true, with...)

	// What belongs to another cluster is that one's.
	host(t, s, "theirs", "critical")
	put(t, s, "jorc/other/members/theirs", "{}")
	host(t, s, "nobodys", "critical")
	want(false, append(slices.Clone(failed), "nobodys check Serf Health Status critical: said by gossip")...)
	put(t, s, "jorc/default/nodes/theirs", `{"format":1,"version":"v1"}`)
	want(false, append(slices.Clone(failed), "nobodys check Serf Health Status critical: said by gossip", "theirs check Serf Health Status critical: said by gossip")...)
}

func TestUnaccounted(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	want := func(want ...string) {
		t.Helper()
		all, err := l.Unaccounted(t.Context())
		var got []string
		for _, u := range all {
			got = append(got, u.Host+": "+strings.Join(u.Reasons, ", "))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Unaccounted\ngot  %q, %v\nwant %q", got, err, want)
		}
	}
	want()
	for _, n := range []string{"good", "dead", "silent", "stale", "gone"} {
		mustState(t, l, n, nodes.Provisioned, nodes.State{State: nodes.Success})
		if n != "silent" {
			mustReport(t, l, n, "v1")
		}
	}
	mustState(t, l, "begun", nodes.Provisioned, nodes.State{State: nodes.Running})
	for n, status := range map[string]string{"good": "passing", "dead": "critical", "silent": "passing", "stale": "passing"} {
		host(t, s, n, status)
	}
	check(t, s, "good", "service:jorc", "passing", "jorc", "")
	check(t, s, "dead", "service:jorc", "passing", "jorc", "") // as it was when the host died
	check(t, s, "stale", "service:jorc", "critical", "jorc", "")
	check(t, s, "good", "service:jorc-other", "critical", "jorc-other", "")
	want("dead: "+nodes.DeadHost, "gone: "+nodes.NotCatalog, "silent: "+nodes.NoVersion, "stale: "+nodes.NoJorc)
	put(t, s, "jorc/default/members/good", "{}") // there is a cluster now
	all, err := l.Unaccounted(t.Context())
	if err != nil || len(all) != 4 || !slices.Contains(all[2].Reasons, nodes.NotMember) {
		t.Errorf("in a cluster: %+v, %v", all, err)
	}
	for _, n := range []string{"dead", "gone", "silent", "stale"} {
		if _, _, err := l.Decommission(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	want()
}

func TestDecommission(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	host(t, s, "dead", "critical")
	host(t, s, "logical", "")
	for _, n := range []string{s.Node, "dead", "dead2"} {
		mustReport(t, l, n, "v1")
		mustState(t, l, n, nodes.Provisioned, nodes.State{State: nodes.Success})
	}
	wantIs(t, "Departed of a living host", l.Departed(t.Context(), s.Node), nodes.ErrAlive)
	for _, n := range []string{"dead", "gone", "logical"} {
		if err := l.Departed(t.Context(), n); err != nil {
			t.Errorf("Departed(%s) = %v", n, err)
		}
	}
	put(t, s, "jorc/default/running_version/v7/dead", "x")
	put(t, s, "jorc/default/status/config/failed/dead", "x")
	groups := slots.New(nodesStore(s), slots.Options{})
	for _, g := range []string{"edge", "update"} {
		if _, err := groups.Acquire(t.Context(), g, 1, slots.Holder{Node: "dead", ID: "1", Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	removed, freed, err := l.Decommission(t.Context(), "dead")
	if err != nil || len(removed) != 5 || !slices.Equal(freed, []string{"edge/1", "update/1"}) {
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
			_, err := l.Report(context.Background(), "n1", fmt.Sprintf("v%d", i))
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
		"Trigger":      func(l *nodes.Ledger) error { _, err := l.Trigger(t.Context(), "v2", false); return err },
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

func TestWhy(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	why := func(node string) string {
		t.Helper()
		f, err := l.Facts(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		f.Held = append(f.Held, "the cluster is paused")
		var reasons []string
		w := nodes.Explain(f)
		for _, r := range w.Reasons {
			reasons = append(reasons, r.Reason)
		}
		return fmt.Sprint(w.Pending, " ", strings.Join(reasons, " "))
	}
	for _, step := range []struct {
		do   func()
		node string
		want string
	}{
		{func() {}, s.Node, "false nothing desired"},
		{func() { put(t, s, "jorc/default/current_version", "v2") }, s.Node, "true agent held"},
		{func() { check(t, s, s.Node, "service:jorc", "passing", "jorc", "") }, s.Node, "true held"},
		{func() { mustState(t, l, s.Node, "config", nodes.State{State: nodes.Failed}) }, s.Node, "true held state"},
		{func() { mustReport(t, l, s.Node, "v2") }, s.Node, "false arrived"},
		{func() { host(t, s, "dead", "critical") }, "dead", "true host held"},
		{func() {}, "gone", "true host held"},
	} {
		step.do()
		if got := why(step.node); got != step.want {
			t.Errorf("%s: got %s, want %s", step.node, got, step.want)
		}
	}
	w := nodes.Explain(nodes.Facts{Node: "n", Desired: "v2", Life: nodes.Alive, Jorc: "passing"})
	if len(w.Reasons) != 1 || w.Reasons[0].Reason != nodes.WhyUnknown {
		t.Errorf("nothing known: %+v", w)
	}
}
