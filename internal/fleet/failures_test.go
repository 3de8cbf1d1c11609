package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
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
	mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateFailed, Detail: "task puppet"})
	mustState(t, l, "n1", "validation", cluster.CategoryState{State: cluster.StatePending})
	mustState(t, l, "n1", "backup", cluster.CategoryState{State: cluster.StateFailed})
	mustState(t, l, "n2", "config", cluster.CategoryState{State: cluster.StateSuccess, Suspect: "passed at attempt 2 of 3"})
	mustState(t, l, "n3", "puppet", cluster.CategoryState{State: cluster.StateFailed})
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
	put(t, s, "jorc/other/host/theirs/member", "{}")
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
		all, err := l.Unaccounted(t.Context(), cluster.DefaultReportTTL())
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
		mustState(t, l, n, cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateSuccess})
		if n != "silent" {
			mustReport(t, l, n, "v1")
		}
	}
	mustState(t, l, "begun", cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateRunning})
	for n, status := range map[string]string{"good": "passing", "dead": "critical", "silent": "passing", "stale": "passing"} {
		host(t, s, n, status)
	}
	check(t, s, "good", "service:jorc", "passing", "jorc", "")
	check(t, s, "dead", "service:jorc", "passing", "jorc", "") // as it was when the host died
	check(t, s, "stale", "service:jorc", "critical", "jorc", "")
	check(t, s, "good", "service:jorc-other", "critical", "jorc-other", "")
	want("dead: "+cluster.ReasonDown, "gone: "+cluster.ReasonAbsent, "silent: "+cluster.ReasonNoVersion, "stale: "+cluster.ReasonNoAgent)
	put(t, s, "jorc/default/host/good/member", "{}") // there is a cluster now
	all, err := l.Unaccounted(t.Context(), cluster.DefaultReportTTL())
	if err != nil || len(all) != 4 || !slices.Contains(all[2].Reasons, cluster.ReasonNotMember) {
		t.Errorf("in a cluster: %+v, %v", all, err)
	}
	for _, n := range []string{"dead", "gone", "silent", "stale"} {
		if _, _, err := l.Decommission(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	want()
}

// TestReportsAge: a provisioned host without a jorc agent is unaccounted for once
// its last report of a category is too old; a repeated report is recorded when it
// matters, and not before.
func TestReportsAge(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	now := time.Now().UTC().Truncate(time.Second)
	report := func(node string, config, validation, repeated time.Duration) {
		t.Helper()
		put(t, s, "jorc/default/nodes/"+node, fmt.Sprintf(`{"format":1,"version":"v1","states":{"provisioned":{"state":"success"},
			"config":{"state":"success","version":"v1","since":%q},"validation":{"state":"success","version":"v1","since":%q,"reported":%q}}}`,
			now.Add(-config).Format(time.RFC3339), now.Add(-validation).Format(time.RFC3339), now.Add(-repeated).Format(time.RFC3339)))
		host(t, s, node, "passing")
	}
	const h, m = time.Hour, time.Minute
	report("agent", 100*h, 100*h, 100*h)
	check(t, s, "agent", "service:jorc", "passing", "jorc", "")
	report("fresh", 23*h, 100*h, 50*m)
	report("old", 25*h, 100*h, 50*m)
	report("older", 25*h, 100*h, 80*m)
	want := func(ttl map[string]time.Duration, want ...string) {
		t.Helper()
		all, err := l.Unaccounted(t.Context(), ttl)
		var got []string
		for _, u := range all {
			got = append(got, u.Host+": "+strings.Join(u.Reasons, ", "))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Unaccounted(%v)\ngot  %q, %v\nwant %q", ttl, got, err, want)
		}
	}
	ttl := cluster.DefaultReportTTL()
	want(ttl, "old: no report of config for more than 24h", "older: no report of config for more than 24h, no report of validation for more than 1h")
	want(nil)
	for _, node := range []string{"fresh", "older"} {
		changed, err := l.SetState(t.Context(), node, cluster.CategoryValidation, cluster.CategoryState{State: cluster.StateSuccess, Version: "v1"})
		if !changed || err != nil {
			t.Errorf("a repeated report of %s: changed %v, %v; want it recorded", node, changed, err)
		}
	}
	want(map[string]time.Duration{cluster.CategoryValidation: h})
	unwritten(t, s, "a report that is repeated at once", func() {
		if changed, err := l.SetState(t.Context(), "older", cluster.CategoryValidation, cluster.CategoryState{State: cluster.StateSuccess, Version: "v1"}); changed || err != nil {
			t.Errorf("changed %v, %v", changed, err)
		}
	})
	if state := mustDocument(t, l, "older").States[cluster.CategoryValidation]; !state.Since.Equal(now.Add(-100 * h)) {
		t.Errorf("since %v, want the time of the first report", state.Since)
	}
}

// TestDeath kills a host's Consul agent: gossip tells, and from then on the
// host holds nothing back, is shown everywhere, and can be decommissioned.
func TestDeath(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	l := fleet.New(servers[0].Client(), "jorc", "default")
	for i, s := range servers {
		mustState(t, l, s.Node, cluster.CategoryProvisioned, cluster.CategoryState{State: cluster.StateSuccess})
		mustReport(t, l, s.Node, []string{"v2", "v2", "v1"}[i])
	}
	dead := servers[2].Node
	single := func() (cluster.Uniqueness, error) { return l.UniqueVersion(t.Context(), "v2") }
	if got, err := single(); err != nil || got.Single {
		t.Errorf("while it lives: %+v, %v", got, err)
	}
	clustertest.WantIs(t, "Departed while it lives", l.CheckDeparted(t.Context(), dead), cluster.ErrAlive)
	servers[2].Kill()
	consultest.Eventually(t, "gossip to miss a host", func(ctx context.Context) error {
		got, err := single()
		if err == nil && !got.Single {
			err = fmt.Errorf("%+v", got)
		}
		if err == nil && (len(got.Detached) != 1 || got.Detached[0].Host != dead || got.Detached[0].Life != cluster.LivenessDown) {
			t.Errorf("named apart: %+v", got.Detached)
		}
		return err
	})
	if all, err := l.Unaccounted(t.Context(), cluster.DefaultReportTTL()); err != nil || len(all) != 1 || all[0].Host != dead || !slices.Contains(all[0].Reasons, cluster.ReasonDown) {
		t.Errorf("Unaccounted = %+v, %v", all, err)
	}
	if all, err := l.Failures(t.Context(), false); err != nil || len(all) != 1 || all[0].Host != dead || all[0].Kind != cluster.FailureCheck {
		t.Errorf("Failures = %+v, %v", all, err)
	}
	if err := l.CheckDeparted(t.Context(), dead); err != nil {
		t.Errorf("Departed = %v", err)
	}
	if removed, _, err := l.Decommission(t.Context(), dead); err != nil || len(removed) != 3 {
		t.Errorf("Decommission = %v, %v", removed, err)
	}
	if got, err := single(); err != nil || !got.Single || len(got.Detached) > 0 {
		t.Errorf("after it was decommissioned: %+v, %v", got, err)
	}
}

func TestWhy(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	why := func(node string) string {
		t.Helper()
		f, err := l.WhyFacts(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		f.Held = append(f.Held, "the cluster is paused")
		var reasons []string
		w := cluster.Explain(f)
		for _, r := range w.Reasons {
			reasons = append(reasons, r.Reason)
		}
		return fmt.Sprint(w.Pending, " ", strings.Join(reasons, " "))
	}
	host(t, s, "n1", "passing") // no agent of Consul's, which would remove what it does not know
	for _, step := range []struct {
		do   func()
		node string
		want string
	}{
		{func() {}, "n1", "false nothing desired"},
		{func() { put(t, s, "jorc/default/current_version", "v2") }, "n1", "true agent held"},
		{func() { check(t, s, "n1", "service:jorc", "passing", "jorc", "") }, "n1", "true held"},
		{func() { mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateFailed}) }, "n1", "true held state"},
		{func() { mustReport(t, l, "n1", "v2") }, "n1", "false arrived state"},
		{func() {
			mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess, Suspect: "drifted: /etc/x"})
		}, "n1", "false arrived state"},
		{func() { mustState(t, l, "n1", "config", cluster.CategoryState{State: cluster.StateSuccess}) }, "n1", "false arrived"},
		{func() { host(t, s, "dead", "critical") }, "dead", "true host held"},
		{func() {}, "gone", "true host held"},
	} {
		step.do()
		if got := why(step.node); got != step.want {
			t.Errorf("%s: got %s, want %s", step.node, got, step.want)
		}
	}
	well := cluster.Assess(cluster.Signals{
		Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Maintenance: cluster.MaintenanceNone, Checks: "passing",
	})
	w := cluster.Explain(cluster.WhyFacts{Node: "n", Desired: "v2", Host: cluster.Host{Condition: well}})
	if len(w.Reasons) != 1 || w.Reasons[0].Reason != cluster.WhyUnknown {
		t.Errorf("nothing known: %+v", w)
	}
}
