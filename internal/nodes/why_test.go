package nodes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/nodes"
)

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
		{func() { mustReport(t, l, s.Node, "v2") }, s.Node, "false arrived state"},
		{func() {
			mustState(t, l, s.Node, "config", nodes.State{State: nodes.Success, Suspect: "drifted: /etc/x"})
		}, s.Node, "false arrived state"},
		{func() { mustState(t, l, s.Node, "config", nodes.State{State: nodes.Success}) }, s.Node, "false arrived"},
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
