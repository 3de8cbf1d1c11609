package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

const isolationConf = `
http { address = "127.0.0.1:0" }
service "web" { port = 80 }
member { roles = ["web"] }
orchestrator { interval = "1s" }
static { workflow = "converge" }
workflow "converge" {
  task "apply" { script = "echo {{ .Version }} >DIR/version" }
}
workflow "hello" {
  task "hello" { script = "echo hello >>DIR/hello" }
}
`

// list is a JSON array of n strings, each with so many letters and its number.
func list(n, length int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"%s%d"`, strings.Repeat("x", length), i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// object is a JSON object with n members called x0, x1, … of the same value.
func object(n int, value string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"x%d":%s`, i, value))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// TestOneNodeStopsNobody: whatever a node writes to its own keys, or registers,
// events of others are journalled, a rollout and a run on another host finish, and
// the orchestrator's host is ready.
func TestOneNodeStopsNobody(t *testing.T) {
	t.Parallel()
	const large = 480 << 10
	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	job := `{"run":"r","job":"r.1","state":"failed","why":%s,"tail":%s,"task":"x","done":%s}`
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	variants := []struct {
		name     string
		keys     map[string]string // of the node "evil"
		services int               // registered on it
		length   int               // of their names
		trouble  string            // that is shown of the node
	}{
		{name: "large zone", keys: map[string]string{"members": `{"zone":` + text(large) + `}`}, trouble: "at most 256 KB"},
		{name: "zone", keys: map[string]string{"members": `{"zone":` + text(200<<10) + `}`}, trouble: "zone"},
		{name: "one large role", keys: map[string]string{"members": `{"roles":[` + text(large) + `]}`}, trouble: "at most 256 KB"},
		{name: "1,000 roles", keys: map[string]string{"members": `{"roles":` + list(1000, 100) + `}`}, trouble: "roles"},
		{name: "many params", keys: map[string]string{"members": `{"params":` + object(20000, `"xxxxxxxxx"`) + `}`}, trouble: "at most 256 KB"},
		{name: "large param", keys: map[string]string{"members": `{"params":{"x":` + text(200<<10) + `}}`}},
		{name: "needs", keys: map[string]string{"members": `{"provides":` + list(2000, 80) + `,"requires":[{"target":` + text(1000) + `}]}`}, trouble: "services"},
		{name: "deep", keys: map[string]string{"members": `{"params":{"x":` + deep(9000) + `}}`, "nodes": `{"states":{"config":` + deep(100000) + `}}`}, trouble: "nodes/evil"},
		{name: "rubbish", keys: map[string]string{"members": strings.Repeat("\xff", large), "nodes": strings.Repeat("{", large), "results": strings.Repeat("[", large)}, trouble: "at most 256 KB"},
		{name: "large version", keys: map[string]string{"members": `{}`, "nodes": `{"version":` + text(large) + `}`}, trouble: "at most 256 KB"},
		{name: "version", keys: map[string]string{"members": `{}`, "nodes": `{"version":` + text(200<<10) + `}`}, trouble: "a name of"},
		{name: "many states", keys: map[string]string{"members": `{}`, "nodes": `{"states":` + object(5000, `{"state":"failed","version":"v1"}`) + `}`}, trouble: "states, at most"},
		{name: "large detail", keys: map[string]string{"members": `{}`, "nodes": `{"states":{"config":{"state":"failed","version":"v1","detail":` + text(200<<10) + `,"suspect":` + text(20<<10) + `}}}`}},
		{name: "state", keys: map[string]string{"members": `{}`, "nodes": `{"states":{` + text(2000) + `:{"state":` + text(100<<10) + `}}}`}, trouble: "a name of"},
		{name: "large results", keys: map[string]string{"members": `{}`, "results": `{"jobs":[` + fmt.Sprintf(job, text(100<<10), text(300<<10), "[]") + `]}`}},
		{name: "results", keys: map[string]string{"members": `{}`, "results": `{"jobs":[` + fmt.Sprintf(job, text(100<<10), text(100), list(1000, 5)) + `]}`}},
		{name: "many jobs", keys: map[string]string{"members": `{}`, "results": `{"jobs":[` + strings.TrimSuffix(strings.Repeat(fmt.Sprintf(job, `"w"`, `"t"`, "[]")+",", 4000), ",") + `]}`}},
		{name: "500 services", keys: map[string]string{"members": `{}`}, services: 500, length: 10},
		{name: "500 services with long names", keys: map[string]string{"members": `{}`}, services: 500, length: 1000, trouble: "services are left out"},
	}
	keyOf := map[string]string{
		"members": "jorc/default/host/evil/member", "nodes": "jorc/default/nodes/evil", "results": "jorc/default/host/evil/results",
	}
	s := consultest.Start(t)
	m := newMachine(t, s, isolationConf)
	if got := m.run("cluster", "init", "default"); got.code != 0 {
		t.Fatalf("init: %+v", got)
	}
	d := m.agent()
	m.eventually("the host to be a member", func() error { return lacks(m.run("cluster", "members").stdout, s.Node) })
	for i, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			m.t, d.m.t = t, t
			for kind, value := range v.keys {
				m.put(keyOf[kind], value)
			}
			m.register("evil", v.services, v.length)
			if v.trouble != "" {
				m.eventually("the trouble of the node", func() error { return lacks(m.run("cluster", "view", "-o", "json").stdout, v.trouble) })
			}
			other := fmt.Sprintf("other-%d", i)
			m.must("cluster", "join", "--node", other)
			m.eventually("the event of another host", func() error {
				return lacks(m.run("cluster", "events", "--limit", "0", "--kind", "member_joined").stdout, other+" is a member")
			})
			m.must("cluster", "leave", "--node", other)
			version := fmt.Sprintf("v%d", i)
			m.must("update", "trigger", version, "--max-parallel", "5")
			m.must("update", "wait", "--timeout", "1m")
			m.wantFile("version", version+"\n")
			m.must("cluster", "run", "hello", "--role", "web", "--wait", "--timeout", "1m")
			m.wantFile("hello", strings.Repeat("hello\n", i+1))
			if got := d.get("/healthz?ready"); got != "ok\n" {
				t.Errorf("/healthz?ready: %s", got)
			}
			for _, kind := range []string{"members", "nodes", "results"} {
				if err := m.client.KVDeleteTree(t.Context(), keyOf[kind]); err != nil {
					t.Fatal(err)
				}
			}
			m.register("evil", 0, 0)
		})
	}
	m.t, d.m.t = t, t
	for _, r := range strings.Split(strings.TrimSpace(m.must("cluster", "report", "-o", "plain").stdout), "\n") {
		if strings.Contains(r, "\tfailed\t") {
			t.Errorf("a cycle failed: %s", r)
		}
	}
}

// must runs the program and fails the test unless it succeeds.
func (m *machine) must(args ...string) result {
	m.t.Helper()
	got := m.run(args...)
	if got.code != 0 {
		m.t.Fatalf("jorc %s: %+v", strings.Join(args, " "), got)
	}
	return got
}

// register puts n services with names of so many letters on a node, in place of
// all that it had; none: the node is not there.
func (m *machine) register(node string, n, length int) {
	m.t.Helper()
	if err := m.client.CatalogDeregister(m.t.Context(), &consul.CatalogDeregister{Node: node}); err != nil {
		m.t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("%s%d", strings.Repeat("s", length), i)
		err := m.client.CatalogRegister(m.t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.9", Service: &consul.AgentService{ID: name, Service: name},
			Checks: consul.HealthChecks{{Node: node, CheckID: "serfHealth", Name: "serf", Status: "passing"}},
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// TestFailingOrchestrator: an orchestrator of which cycles fail again and again is
// not ready, and shows the reason; when they succeed again it is, and events tell of both.
func TestFailingOrchestrator(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), isolationConf)
	m.must("cluster", "init", "default")
	d := m.agent()
	m.eventually("ready", func() error { return lacks(d.get("/healthz?ready"), "ok\n") })
	m.eventually("the first view", func() error { // of a cycle that may run already
		if got := m.run("cluster", "view"); got.code != 0 {
			return errors.New(got.stderr)
		}
		return nil
	})
	saved := m.value("jorc/default/view/commit")
	m.put("jorc/default/view/commit", `{"format":99}`)
	m.eventually("not ready", func() error {
		m.run("cluster", "join", "--node", "x")
		m.run("cluster", "leave", "--node", "x")
		return lacks(d.get("/healthz?ready"), `the orchestrator of cluster "default": the last `)
	})
	if got := d.get("/healthz?ready"); !strings.Contains(got, "upgrade jorc") {
		t.Errorf("/healthz?ready does not say why: %s", got)
	}
	if got := d.get("/healthz"); got != "ok\n" {
		t.Errorf("/healthz: %s", got)
	}
	if got := d.get("/metrics"); strings.Contains(got, "jorc_orchestrator_failed_cycles{cluster=\"default\"} 0\n") || !strings.Contains(got, "jorc_orchestrator_failed_cycles{cluster=\"default\"} ") {
		t.Errorf("the metrics do not count failed cycles")
	}
	m.put("jorc/default/view/commit", saved)
	m.eventually("ready again", func() error { return lacks(d.get("/healthz?ready"), "ok\n") })
	for _, kind := range []string{"orchestrator_failing", "orchestrator_recovered"} {
		m.eventually("the event "+kind, func() error { return lacks(m.run("cluster", "events", "--kind", kind).stdout, kind) })
	}
}

// value is the value of a key.
func (m *machine) value(key string) string {
	m.t.Helper()
	p, _, err := m.client.KVGet(m.t.Context(), key, consul.Query{})
	if err != nil || p == nil {
		m.t.Fatalf("%s: %v", key, err)
	}
	return string(p.Value)
}
