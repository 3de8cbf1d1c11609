package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestRefusedNames: a command that would make a key which this Consul does not read fails,
// names it, and writes nothing.
func TestRefusedNames(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["CONSUL_HTTP_ADDR"] = s.Strict().Addr
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "join", "--node", "n1")
	if err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{Node: "n+1", Address: "10.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	keys := func() []string {
		list, _, err := s.Client().KVKeys(t.Context(), "", "", consul.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := keys()
	for _, args := range []string{
		"update trigger v1+b", "update trigger v1:b --reason x", "update trigger v1~b --dry-run", "trigger_update v1@b",
		"update report --version v1+b --host n1", "status set a+b success --host n1", "status set config success --host n+1",
		"cluster init prod+1", "cluster join --node n+1", "cluster hold --node n+1", "cluster profile set k 1 --node n+1", "cluster profile set k 1 --cluster prod+1",
		"cluster meta set k 1 --node n+1", "cluster lock a+b --node n1 -- true", "cluster lock a --node n+1 -- true",
		"cluster leader --cluster prod+1",
	} {
		got := jorc(t, env, strings.Fields(args)...)
		if got.code != exitFailed || !strings.Contains(got.stderr, "refused by Consul") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("jorc %s = %+v", args, got)
		}
		for _, wrong := range []string{"could not be reached", "outcome unknown"} {
			if strings.Contains(got.stderr, wrong) {
				t.Errorf("jorc %s says %q", args, got.stderr)
			}
		}
	}
	if after := keys(); !slices.Equal(before, after) {
		t.Errorf("keys were written: %q; before %q", after, before)
	}
	if got := jorc(t, env, "update", "trigger", "v1.2-b_3"); got.code != 0 {
		t.Errorf("a version that every Consul takes: %+v", got)
	}
	t.Run("doctor", func(t *testing.T) {
		report := jorc(t, env, "doctor")
		if strings.Contains(report.stdout, "refuses") {
			t.Errorf("doctor finds something before it is there: %s", report.stdout)
		}
		for _, key := range []string{"jorc/default/running_version/v1+b/n1", "jorc/default/running_version/v2+b/n1", "jorc/default/status/a:b/ok/n1"} {
			s.Plant(key, "")
		}
		report = jorc(t, env, "doctor")
		for _, part := range []string{"keys", "running_version/v1+b/n1", "running_version/v2+b/n1", "status/a:b/ok/n1", "refuses to read stored keys: \"", "invalid key name"} {
			if !strings.Contains(report.stdout, part) {
				t.Errorf("doctor does not say %q: %s", part, report.stdout)
			}
		}
	})
}

// TestRefusedNode: an agent whose node's keys Consul refuses says so, once, and does not
// take it for an outage.
func TestRefusedNode(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, `
node = "n+1"
member { roles = ["db"] }
static { workflow = "w" }
workflow "w" {
  task "t" { command = ["touch", "DIR/ran"] }
}
template "t" {
  contents    = "rendered"
  destination = "DIR/t"
}
`)
	m.env = append(m.env, "CONSUL_HTTP_ADDR="+s.Strict().Addr)
	m.put("jorc/default/current_version", "v1")
	agent := m.agent()
	m.wantFile("t", "rendered")
	agent.wantSaid(`jorc/default/host/n+1/`)
	agent.wantSaid("refused by Consul")
	if got := m.run("update", "why", "n+1"); got.code != exitFailed || !strings.Contains(got.stderr, "refused by Consul") {
		t.Errorf("update why = %+v", got)
	}
	for _, wrong := range []string{"could not be reached", "does not answer"} {
		if strings.Contains(agent.said.String(), wrong) {
			t.Errorf("it is taken for an outage: %s", wrong)
		}
	}
	if m.read("ran") != "" {
		t.Error("the host has converged without knowing whether it is held")
	}
}
