package main

import (
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestRemedies: of each document that is damaged a command says what to type, and
// that works.
func TestRemedies(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	must := func(line string) {
		t.Helper()
		if got := jorc(t, env, strings.Fields(line)...); got.code != 0 {
			t.Fatalf("jorc %s: %+v", line, got)
		}
	}
	file := t.TempDir() + "/backup.json"
	must("cluster init default")
	members(t, s, "n1")
	must("update trigger v1 --max-parallel 1")
	if err := os.WriteFile(file, []byte(jorc(t, env, "cluster", "export").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, says := range map[string][3]string{
		"current/control": {"cluster pause", "import --replace", "cluster import --replace " + file},
		"current_version": {"update why n1", "update trigger", "update trigger v1"},
		"current/leaders": {"cluster leader", "cluster leader --count", "cluster leader --count 1"},
		"nodes/n1":        {"update why n1", "status repair", "status repair"},
		"profile":         {"update show", "import --replace", "cluster import --replace " + file},
		"current/version": {"update show", "update trigger", "update trigger v1 --max-parallel 1"},
	} {
		if err := s.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte(`{"x`)}); err != nil {
			t.Fatal(err)
		}
		if got := jorc(t, env, strings.Fields(says[0])...); got.code != exitFailed || !strings.Contains(got.stderr, says[1]) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s is damaged: jorc %s: %+v", key, says[0], got)
		}
		if key == "current/leaders" {
			if err := s.Client().KVDeleteTree(t.Context(), "jorc/default/"+key); err != nil {
				t.Fatal(err)
			}
		}
		got := jorc(t, env, strings.Fields(says[2])...)
		if got.code != 0 || strings.HasPrefix(says[2], "update trigger") && !strings.Contains(got.stderr, key+`": damaged document`) {
			t.Fatalf("%s is damaged: jorc %s: %+v, want exit 0 and what was damaged", key, says[2], got)
		}
		got = jorc(t, env, strings.Fields(says[0])...)
		waits := strings.HasPrefix(says[0], "update why") && got.code == exitFailed // the host does not run the version
		if got.code != exitOK && !waits {
			t.Errorf("after %q: jorc %s: %+v", says[2], says[0], got)
		}
		if key == "current/control" {
			must("cluster resume")
		}
	}
}

// TestDamagedLeadersStopNoRollout: where the document of leaders is damaged a rollout
// is triggered, paused and held, and members join and leave.
func TestDamagedLeadersStopNoRollout(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, supersedeConf)
	m.must("cluster", "init", "default")
	m.must("cluster", "join", "--node", s.Node, "--role", "web")
	for _, garbage := range []string{"garbage", `{"format":1,"leader":["a/b"],"count":1}`} {
		m.put("jorc/default/current/leaders", garbage)
		for _, args := range []string{
			"update trigger v1 --canary 1", "update show", "update pause", "update resume", "cluster hold --node " + s.Node, "cluster unhold --node " + s.Node,
			"cluster run hello --role web", "cluster join --node n2", "cluster leave --node n2",
		} {
			m.must(strings.Fields(args)...)
		}
	}
}
