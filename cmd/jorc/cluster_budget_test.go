package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestBudget: a budget is set, shown and cleared; what is not a budget is a usage error, and
// changes nothing.
func TestBudget(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), agreementConf)
	m.must("cluster", "init", "default")
	m.must("cluster", "join", "--role", "db")
	shown := func() (v budgetShown) {
		t.Helper()
		if err := json.Unmarshal([]byte(m.must("cluster", "budget", "-o", "json").stdout), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := shown(); v.Budget != nil || len(v.Limits)+len(v.Waiting) > 0 {
		t.Errorf("without a budget %+v is shown", v)
	}
	for _, args := range [][]string{
		{}, {"--max-out", "0"}, {"--max-out", "101%"}, {"--max-out", "-1"}, {"--max-out", "some"}, {"--role", "web"}, {"--role", "=1"}, {"--role", "web=0"}, {"--zones", "0"},
	} {
		if got := m.run(slices.Concat([]string{"cluster", "budget", "set"}, args)...); got.code != exitUsage {
			t.Errorf("budget set %v: %+v, want exit %d", args, got, exitUsage)
		}
	}
	if got := m.run("cluster", "budget", "set", "--role", "wbe=1"); got.code == 0 {
		t.Errorf("a budget of a role that no member has: %+v", got)
	}
	if v := shown(); v.Budget != nil {
		t.Fatalf("what was refused is the budget %s", v.Budget)
	}
	got := m.must("cluster", "budget", "set", "--max-out", "10%", "--zones", "1", "--reason", "two carry the load")
	if err := lacks(got.stderr, "no orchestrator runs"); err != nil {
		t.Error(err)
	}
	if v := shown(); v.Budget == nil || v.Budget.String() != "10% of the hosts, 1 zone" || v.Budget.Reason != "two carry the load" || len(v.Limits) != 2 {
		t.Errorf("the budget is %+v", v)
	}
	if err := lacks(m.must("cluster", "budget", "set", "--max-out", "10%", "--zones", "1").stderr, "that is the budget already; nothing was changed"); err != nil {
		t.Error(err)
	}
	m.must("cluster", "pause") // it is in the same key
	m.must("cluster", "resume")
	if v := shown(); v.Budget == nil {
		t.Error("a pause and its end removed the budget")
	}
	m.must("update", "trigger", "v1")
	if err := lacks(m.must("update", "show").stdout, "max-parallel 100%"); err != nil {
		t.Error(err)
	}
	m.must("cluster", "budget", "clear")
	if v := shown(); v.Budget != nil {
		t.Errorf("after clear the budget is %s", v.Budget)
	}
}
