package main

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fleet"
)

// completed are the words that completion offers for the last of words, if it has
// that much time to read names.
func completed(t *testing.T, within time.Duration, env map[string]string, words ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	h := testHost(env, &stdout, &stderr)
	h.completionTime = within
	if code := run(t.Context(), append([]string{completeCommand}, words...), h); code != exitOK || stderr.Len() > 0 {
		t.Errorf("%q: exit %d, %s", words, code, stderr.String())
	}
	var offered []string
	for line := range strings.Lines(stdout.String()) {
		word, _, _ := strings.Cut(line, "\t")
		offered = append(offered, word)
	}
	return strings.Join(offered, " ")
}

// named makes a cluster with names of every kind.
func named(t *testing.T, s *consultest.Server, env map[string]string) {
	t.Helper()
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "init", "prod")
	members(t, s, "web-1", "web-2")
	do(result{0, "", ""}, "join", "--node", "db-1", "--role", "db", "--zone", "rack-7")
	for _, args := range [][]string{
		{"cluster", "run", "install", "--id", "old", "--needs-approval"},
		{"cluster", "run", "reload", "--id", "new", "--needs-approval"},
		{"update", "report", "--host", "web-1", "--version", "v1"},
		{"update", "trigger", "v2"},
	} {
		if got := jorc(t, env, args...); got.code != 0 {
			t.Fatalf("%q: %+v", args, got)
		}
	}
	for _, name := range []string{"$(touch /tmp/owned)", "a b", "tab\tbed", "api"} {
		err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: "elsewhere", Address: "10.0.0.9", Service: &consul.AgentService{ID: name, Service: name},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompleteNames: names of every kind come from Consul, with few requests, and
// none that a shell would expand.
func TestCompleteNames(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	proxy := s.Proxy()
	env := onServer(t, s)
	named(t, s, env)
	env["CONSUL_HTTP_ADDR"] = proxy.Config().Address
	var mu sync.Mutex
	var asked []string
	proxy.Do(func(r *http.Request) consultest.Fault {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		return consultest.Fault{}
	})
	for _, test := range []struct {
		line     string // a trailing space begins a new word
		want     string
		requests int
	}{
		{"update why ", "db-1 web-1 web-2", 2},
		{"update give-up w", "web-1 web-2", 2},
		{"update verify v1 web-1 d", "db-1", 2},
		{"cluster hold --node ", "db-1 web-1 web-2", 2},
		{"cluster hold --node=w", "--node=web-1 --node=web-2", 2},
		{"cluster hold --node = w", "web-1 web-2", 2},
		{"cluster members --role ", "db leader manager web worker", 2},
		{"cluster join --zone ", "rack-7", 2},
		{"cluster show ", "default prod", 1},
		{"--cluster ", "default prod", 1},
		{"update why --cluster prod ", "", 2},
		{"cluster runs ", "new old", 2},
		{"cluster logs o", "old", 2},
		{"cluster logs old w", "web-1 web-2", 2},
		{"cluster cancel ", "new old", 1},
		{"cluster wait --except-run ", "new old", 2},
		{"update trigger ", "v1 v2", 2},
		{"update hosts ", "v1 v2", 2},
		{"wait a", "api", 1},
		{"service resolve ", "api consul jorc", 1},
		{"cluster run ", "install reload", 5},
		{"cluster run install ", "", 0},
		{"cluster init ", "", 0},
		{"update why --", "--help --http-addr", 0},
		{"wait web -- ", "", 0},
	} {
		asked = nil
		got := completed(t, time.Hour, env, strings.Split(test.line, " ")...)
		if got != test.want && !(strings.HasSuffix(test.line, "--") && strings.HasPrefix(got, test.want)) {
			t.Errorf("%q: got %q, want %q", test.line, got, test.want)
		}
		mu.Lock()
		if len(asked) > test.requests {
			t.Errorf("%q: asked %q; want %d requests", test.line, asked, test.requests)
		}
		mu.Unlock()
	}
	c := fleet.New(s.Client(), "jorc", "default")
	if _, err := c.Join(t.Context(), "db-1", func(r cluster.Record) (cluster.Record, error) {
		r.Workflows = []string{"backup", "vacuum"}
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	asked = nil
	if got := completed(t, time.Hour, env, "cluster", "run", ""); got != "backup vacuum" || len(asked) > 2 {
		t.Errorf("of hosts that report their workflows: %q with requests %q", got, asked)
	}
}

// TestCompleteQuietly: a Consul that is away, slow or denies offers nothing, and
// says nothing.
func TestCompleteQuietly(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithACL())
	if _, err := fleet.New(s.Client(), "jorc", "default").Init(t.Context(), fleet.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	members(t, s, "web-1")
	proxy := s.Proxy()
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	slow := false
	proxy.Do(func(r *http.Request) consultest.Fault {
		if slow {
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		return consultest.Fault{}
	})
	env := func(address, token string) map[string]string {
		e := onServer(t, s)
		e["CONSUL_HTTP_ADDR"], e["CONSUL_HTTP_TOKEN"] = address, token
		return e
	}
	words := [][]string{
		{"update", "why", ""}, {"cluster", "members", "--role", ""}, {"--cluster", ""}, {"cluster", "runs", ""}, {"update", "trigger", ""}, {"cluster", "run", ""},
	}
	if got := completed(t, time.Hour, env(proxy.Config().Address, s.RootToken), words[0]...); got != "web-1" {
		t.Errorf("with all rights: got %q", got)
	}
	none := s.NewToken(`node "other" { policy = "read" }`)
	for _, w := range words {
		if got := completed(t, time.Hour, env(proxy.Config().Address, none), w...); got != "" {
			t.Errorf("denied, %q: got %q", w, got)
		}
		if got := completed(t, time.Hour, env("127.0.0.1:1", ""), w...); got != "" {
			t.Errorf("no Consul, %q: got %q", w, got)
		}
	}
	slow = true
	for _, w := range words {
		if got := completed(t, completionTime, env(proxy.Config().Address, s.RootToken), w...); got != "" {
			t.Errorf("slow, %q: got %q", w, got)
		}
	}
	wrong := env(proxy.Config().Address, s.RootToken)
	wrong["JORC_CONFIG"] = "/nonexistent"
	if got := completed(t, time.Hour, wrong, words[0]...); got != "" {
		t.Errorf("a configuration that cannot be read: got %q", got)
	}
}
