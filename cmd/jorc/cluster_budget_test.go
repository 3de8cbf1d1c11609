package main

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
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
	for _, args := range [][]string{{"update", "trigger", "v1"}, {"update", "rollback"}, {"cluster", "run", "w"}, {"stage", "resume", "edge"}} {
		if got := m.run(slices.Concat(args, []string{"--over-budget", ""})...); got.code == 0 || lacks(got.stderr, "--over-budget must give a reason") != nil && args[0] != "stage" {
			t.Errorf("%v over the budget without a reason: %+v", args, got)
		}
	}
	m.must("update", "trigger", "v1", "--over-budget", "the hole is open")
	if err := lacksAny(m.must("update", "show").stdout, "over budget", "the hole is open"); err != nil {
		t.Error(err)
	}
	if err := lacks(m.must("cluster", "audit").stdout, "jorc update trigger v1 --over-budget='the hole is open'"); err != nil {
		t.Error(err)
	}
	m.must("cluster", "budget", "clear")
	if v := shown(); v.Budget != nil {
		t.Errorf("after clear the budget is %s", v.Budget)
	}
}

// TestAttentionAdvises: five members without a budget are advised to have one, which changes no exit code.
func TestAttentionAdvises(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0, "web-1", "web-2", "web-3", "web-4", "web-5")
	lock, err := kv.New(f.server.Client(), "jorc/prod").Lock(t.Context(), cluster.OrchestratorLock, kv.LeaseOptions{Holder: kv.Holder{Node: "boss"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release(context.WithoutCancel(t.Context())) }) // the server ends, too
	got := jorc(t, f.env, "cluster", "attention")
	if err := lacksAny(got.stdout, "advice", "the cluster has 5 members and no budget", "jorc cluster budget set --max-out 10%"); err != nil || got.code != 0 {
		t.Errorf("%+v: %v", got, err)
	}
	if got := jorc(t, f.env, "cluster", "budget", "set", "--max-out", "10%"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := jorc(t, f.env, "cluster", "attention"); got.code != 0 || got.stdout != "" {
		t.Errorf("with a budget: %+v", got)
	}
}
