package main

import (
	"testing"
	"time"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/rollout"
)

// members makes nodes members of the cluster default whose hosts and agents are
// there.
func members(t *testing.T, s *consultest.Server, names ...string) {
	t.Helper()
	c := fleet.New(s.Client(), "jorc", "default")
	for _, node := range names {
		_, err := c.Join(t.Context(), node, func(r cluster.Record) (cluster.Record, error) {
			r.Roles = []string{"web"}
			return r, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Bystanders(node)
		id := catalog.PresenceID("default")
		err = s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1", Service: &consul.AgentService{ID: id, Service: "jorc"},
			Checks: consul.HealthChecks{
				{Node: node, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing"},
				{Node: node, CheckID: "service:" + id, ServiceID: id, ServiceName: "jorc", Status: "passing"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// orchestrate is a cycle of an orchestrator.
func orchestrate(t *testing.T, s *consultest.Server) {
	t.Helper()
	r := rollout.New(s.Client(), "jorc", "default")
	state, err := r.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Observe(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	plan := rollout.Plan(state.Document, v, time.Now())
	if do := r.Replace(state, plan.Document); do != nil {
		txn := kv.New(s.Client(), "jorc/default").Txn()
		do(txn)
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRolloutSession: a rollout as an operator sees it.
func TestRolloutSession(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["USER"] = "ann"
	if _, err := fleet.New(s.Client(), "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	members(t, s, "n1", "n2", "n3", "n4")
	cl := fleet.New(s.Client(), "jorc", "default")
	report := func(version string, names ...string) {
		t.Helper()
		for _, node := range names {
			if _, err := cl.ReportVersion(t.Context(), node, version); err != nil {
				t.Fatal(err)
			}
		}
	}
	session(t, s, env, "rollout", `
		update show
		update show -o json
		update pause
		update wait
		update trigger v1
		update show
	`)
	report("v1", "n1", "n2", "n3", "n4")
	session(t, s, env, "rollout-canary", `
		update wait
		update trigger v2 --canary 1 --max-parallel 2 --order db
		update trigger v2 --canary 1 --max-parallel 2 --order web=0
		update trigger v2 --canary 1 --max-parallel 2 --batches 50%
		update trigger v2 --canary 1 --max-parallel 2 --dry-run
		update trigger v2 --canary 1 --max-parallel 2 --require-converged
		update trigger v2 --canary 1 --max-parallel 2
		update trigger v2
		update show
		update why n1
	`)
	orchestrate(t, s)
	session(t, s, env, "rollout-under-way", `
		update show
		update show -o json
		update why n1
		update why n2
		update why n3
		update why n4
		update trigger v2 --max-parallel 1 -o json
		update pause --reason lunch
		update pause
		update why n1
		update wait
		update wait -o json
		update resume
		update resume
		update promote
		update promote -o json
		update wait --timeout 2s
		update trigger v3 --require-converged
		update abort --reason broken
		update abort
		update wait
		update resume
		update show
	`)
	session(t, s, env, "rollout-superseded", `
		update trigger v3 --max-parallel 100% --window Mon-Sun%00:00-24:00%Europe/Berlin --min-healthy 1m --node-deadline 1h
		update trigger v4 --max-parallel 1 --on-failure rollback
		trigger_update v5
		update show
	`)
	report("v5", "n1", "n2", "n3", "n4")
	session(t, s, env, "rollout-done", `
		update wait
		update wait -o json
	`)
}
