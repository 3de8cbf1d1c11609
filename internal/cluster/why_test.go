package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
)

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
