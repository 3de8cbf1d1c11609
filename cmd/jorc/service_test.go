package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
)

// onServer are the variables that point a command line at s, with a state
// directory of the test's own.
func onServer(t *testing.T, s *consultest.Server) map[string]string {
	t.Helper()
	return map[string]string{"CONSUL_HTTP_ADDR": s.HTTPAddr, "CONSUL_HTTP_TOKEN": s.RootToken, "JORC_STATE_DIR": t.TempDir()}
}

// onShared is onServer with the package's shared server, and a prefix of the
// test's own. All tests see one catalog: a test that registers services or runs an
// agent starts a server.
func onShared(t *testing.T) (*consultest.Server, map[string]string) {
	t.Helper()
	s, prefix := consultest.Shared(t)
	env := onServer(t, s)
	env["JORC_PREFIX"] = prefix
	return s, env
}

func TestServiceCommands(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	file := writeFile(t, "services.json", `{"services": [
		{"name": "web", "id": "web-1", "port": 8080, "address": "10.0.0.5", "tags": ["http"]},
		{"name": "db", "port": 5432, "check": {"script": "exit 0", "interval": "10s"}}
	]}`)
	do := func(want result, args ...string) {
		t.Helper()
		if got := jorc(t, env, args...); got != want {
			t.Errorf("jorc %s:\ngot  %+v\nwant %+v", strings.Join(args, " "), got, want)
		}
	}
	hint := "jorc: 1 script check to run, and no jorc agent with state directory " + env["JORC_STATE_DIR"] + " to do so: critical until one is started\n"
	do(result{0, "web-1\ndb\n", hint}, "service", "register", file)
	do(result{0, "web-1\ndb\n", hint}, "service", "register", file)
	wantInCatalog(t, s, "web", "db", "consul")

	do(result{0, "10.0.0.5\t8080\t" + s.Node + "\t" + s.Node + ".node.dc1.consul\n", ""}, "service", "resolve", "web")
	do(result{0, "8080\n", ""}, "service", "resolve", "web", "--tag", "http", "--port-only")
	do(result{0, "[\n  8080\n]\n", ""}, "service", "resolve", "--port-only", "-o", "json", "web")
	do(result{1, "", "jorc: service \"db\": no healthy instances: not found\n"}, "service", "resolve", "db")
	do(result{0, "consul\t1\t1\t0\t0\t0\t\ndb\t1\t0\t0\t1\t0\t\nweb\t1\t1\t0\t0\t0\thttp\n", ""}, "service", "list", "-o", "plain")
	do(result{0, "consul\tconsul\t" + s.IP + "\t8300\tpassing\t\ndb\tdb\t" + s.IP + "\t5432\tcritical\t\nweb\tweb-1\t10.0.0.5\t8080\tpassing\thttp\n", ""},
		"service", "list", "--node", s.Node, "-o", "plain")

	hiera := "---\nservices::consul::lan:\n  - " + s.IP + "\nservices::web::lan:\n  - 10.0.0.5\n"
	do(result{0, hiera, ""}, "service", "export", "--format", "hiera")
	out := filepath.Join(t.TempDir(), "services.yaml")
	do(result{0, "", ""}, "service", "export", "--format", "hiera", "--file", out)
	if data, err := os.ReadFile(out); err != nil || string(data) != hiera {
		t.Errorf("%s: %s, %v", out, data, err)
	}
	got := jorc(t, env, "service", "export", "--format=json")
	var answer struct {
		Services map[string][]catalog.ServiceInstance `json:"services"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || len(answer.Services) != 3 || len(answer.Services["web"]) != 1 {
		t.Errorf("%+v: %v", got, err)
	}

	do(result{0, "", ""}, "service", "deregister", "web-1")
	do(result{0, "", "jorc: service \"web-1\": not found at this agent\n"}, "service", "deregister", "web-1")
	if err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{ID: "web-1", Name: "other"}); err != nil {
		t.Fatal(err)
	}
	if got := jorc(t, env, "service", "register", file); got.code != exitConflict || !strings.Contains(got.stderr, "registered by another owner") {
		t.Errorf("somebody else's id: %+v", got)
	}
}

// TestListHostileNames: services whose names Consul's API cannot read are left out
// of the list with one warning; the others are listed.
func TestListHostileNames(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	register := func(name string) {
		t.Helper()
		err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: "n1", Address: "10.0.0.1", Service: &consul.AgentService{ID: "id of " + name, Service: name, Port: 80},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "a/b", "a b"} {
		register(name)
	}
	want := result{0, "a b\t1\t1\t0\t0\t0\t\na/b\t1\t1\t0\t0\t0\t\nconsul\t1\t1\t0\t0\t0\t\nweb\t1\t1\t0\t0\t0\t\n", ""}
	if got := jorc(t, env, "service", "list", "-o", "plain"); got != want {
		t.Errorf("service list: %+v, want %+v", got, want)
	}
	hostile := []string{"..", "../state/any", "//", "\x1b[31mred\n", "x\x00y", ".", strings.Repeat("\x01", 300)}
	for _, name := range hostile {
		register(name)
	}
	for _, format := range []string{"plain", "json", "table"} {
		got := jorc(t, env, "service", "list", "-o", format)
		if got.code != 0 || strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "jorc: left out 7 services with a name that ") || len(got.stderr) > 1000 {
			t.Errorf("service list -o %s: exit %d, %q, want one warning", format, got.code, got.stderr)
		}
		if format == "plain" && got.stdout != want.stdout {
			t.Errorf("service list: %q, want %q", got.stdout, want.stdout)
		}
		if both := got.stdout + got.stderr; strings.ContainsAny(both, "\x1b\x00\x01") {
			t.Errorf("service list -o %s prints control characters: %q", format, both)
		}
	}
}

func TestServiceUsageAndFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		code int
	}{
		{"service", exitUsage},
		{"service list x", exitUsage},
		{"service resolve", exitUsage},
		{"service resolve a b", exitUsage},
		{"service register", exitUsage},
		{"service register /no/such/file", exitUsage},
		{"service deregister", exitUsage},
		{"service export", exitUsage},
		{"service export --format xml", exitUsage},
		{"service list", exitUnreachable},
		{"service resolve web", exitUnreachable},
		{"service export --format hosts", exitUnreachable},
		{"service deregister web", exitUnreachable},
	} {
		env := map[string]string{"CONSUL_HTTP_ADDR": "127.0.0.1:1", "JORC_STATE_DIR": t.TempDir()}
		if got := jorc(t, env, strings.Fields(test.args)...); got.code != test.code || got.stdout != "" || got.stderr == "" {
			t.Errorf("jorc %s: %+v, want exit %d", test.args, got, test.code)
		}
	}
}

func TestServiceRights(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	env := onServer(t, s)
	env["CONSUL_HTTP_TOKEN"] = s.NewToken(`service "web" { policy = "read" } node_prefix "" { policy = "read" }`)
	file := writeFile(t, "web.hcl", `service { name = "web" }`)
	for _, args := range [][]string{
		{"service", "register", file},
		{"service", "resolve", "db"},
		{"service", "export", "--format", "hiera"},
	} {
		if got := jorc(t, env, args...); got.code != exitDenied || got.stdout != "" {
			t.Errorf("jorc %s: %+v, want exit %d", strings.Join(args, " "), got, exitDenied)
		}
	}
}

// TestServiceOfTheDaemon: a running agent takes up what register stores, and
// its own services must not be deregistered.
func TestServiceOfTheDaemon(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	r := catalog.NewRegistrar(s.Client(), []config.Service{{Name: "conf"}}, catalog.RegistrarOptions{StateDir: env["JORC_STATE_DIR"]})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	wantInCatalog(t, s, "conf", "jorc")
	if got := jorc(t, env, "service", "deregister", "conf"); got.code != exitConflict {
		t.Errorf("deregister what is configured: %+v", got)
	}
	file := writeFile(t, "web.json", `{"service": {"name": "web", "check": {"script": "exit 0", "interval": "10s"}}}`)
	if got, want := jorc(t, env, "service", "register", file), (result{0, "web\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	wantPassing(t, s, "web")
}

// TestDeregisterAfterStop: what a stopped agent left registered can be deregistered
// at once, although its own service still passes; while it runs, it cannot.
func TestDeregisterAfterStop(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	lock, err := durable.TryLock(filepath.Join(env["JORC_STATE_DIR"], catalog.LockFile)) // as the agent does
	if err != nil {
		t.Fatal(err)
	}
	r := catalog.NewRegistrar(s.Client(), []config.Service{{Name: "conf"}}, catalog.RegistrarOptions{StateDir: env["JORC_STATE_DIR"]})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	wantInCatalog(t, s, "conf", "jorc")
	wantPassing(t, s, "jorc")
	if got := jorc(t, env, "service", "deregister", "conf"); got.code != exitConflict {
		t.Errorf("deregister what a running agent has: %+v", got)
	}
	stop()
	if err := errors.Join(<-done, lock.Unlock()); err != nil {
		t.Fatal(err)
	}
	wantPassing(t, s, "jorc")
	if got := jorc(t, env, "service", "deregister", "conf"); got != (result{0, "", ""}) {
		t.Errorf("deregister what a stopped agent left: %+v", got)
	}
	if got, _, err := s.Client().CatalogService(t.Context(), "conf", "", consul.Query{}); err != nil || len(got) > 0 {
		t.Errorf("the catalog has %v, %v", got, err)
	}
}

// wantInCatalog waits until these services are in the catalog.
func wantInCatalog(t *testing.T, s *consultest.Server, names ...string) {
	t.Helper()
	c := s.Client()
	consultest.Eventually(t, "the catalog", func(ctx context.Context) error {
		got, _, err := c.CatalogServices(ctx, consul.Query{})
		for _, name := range names {
			if _, ok := got[name]; err == nil && !ok {
				err = fmt.Errorf("%s is missing", name)
			}
		}
		return err
	})
}

func wantPassing(t *testing.T, s *consultest.Server, name string) {
	t.Helper()
	c := s.Client()
	consultest.Eventually(t, name+" to pass", func(ctx context.Context) error {
		got, _, err := c.HealthService(ctx, name, "", true, consul.Query{})
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d instances", len(got))
		}
		return err
	})
}
