package templates_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/watch"
	"github.com/jorc/jorc/templates"
)

// text is the template of a name, as it ships.
func text(t testing.TB, name string) string {
	t.Helper()
	data, err := templates.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// set changes a parameter of a template, as a user does: in its line.
func set(t testing.TB, text, parameter, from, to string) string {
	t.Helper()
	line := "{{- $" + parameter + " := " + from + " -}}"
	if strings.Count(text, line) != 1 {
		t.Fatalf("the template has not exactly one line %s", line)
	}
	return strings.Replace(text, line, "{{- $"+parameter+" := "+to+" -}}", 1)
}

// engine is jorc's own engine over templates.
func engine(t testing.TB, s *consultest.Server, client *consul.Client, list ...config.Template) *watch.Engine {
	t.Helper()
	state := t.TempDir()
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	e, err := watch.New(watch.Options{
		Client: client, Consul: s.Config(), Templates: list, StateDir: state,
		Replacer: replace.New(state, nil, log), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs an engine until the test ends.
func run(t testing.TB, e *watch.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v; want nil after its context ended", err)
		}
	})
}

// render gives what the engine makes of a template.
func render(t testing.TB, s *consultest.Server, contents string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered")
	e := engine(t, s, s.Client(), config.Template{Name: "t", Contents: contents, Destination: file})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Once(ctx); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// instance is one line of a catalog; what is empty stays so.
type instance struct {
	node, nodeAddress, service, address string

	id      string // default: the service
	port    int
	tags    []string
	status  string // default: passing
	meta    map[string]string
	tagged  map[string]consul.ServiceAddress
	weights consul.AgentWeights
}

func (i instance) register(t testing.TB, c *consul.Client) {
	t.Helper()
	if i.id == "" {
		i.id = i.service
	}
	check := &consul.AgentCheck{Node: i.node, CheckID: "check-" + i.id, Name: "check", Status: i.status, ServiceID: i.id}
	switch i.status {
	case "":
		check.Status = consul.HealthPassing
	case consul.HealthMaint:
		check.CheckID, check.Status = "_service_maintenance:"+i.id, consul.HealthCritical
	}
	err := c.CatalogRegister(t.Context(), &consul.CatalogRegistration{
		Node: i.node, Address: i.nodeAddress,
		Service: &consul.AgentService{
			ID: i.id, Service: i.service, Address: i.address, Port: i.port, Tags: i.tags,
			Meta: i.meta, TaggedAddresses: i.tagged, Weights: i.weights,
		},
		Check: check,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// servers is a catalog with everything that may go wrong in a template.
func servers(t testing.TB) *consultest.Server {
	t.Helper()
	s := consultest.Start(t)
	c := s.Client()
	http := []string{"http"}
	for _, i := range []instance{
		{node: "edge-1", nodeAddress: "10.0.0.1", service: "web", port: 8001, tags: http, weights: consul.AgentWeights{Passing: 10, Warning: 2}},
		{node: "edge-2", nodeAddress: "10.0.0.2", service: "web", address: "fd00::2", port: 8002, tags: []string{"http", `it's "v2"`}},
		{node: "edge-3", nodeAddress: "10.0.0.3", service: "web", port: 8003, tags: http, status: consul.HealthWarning, weights: consul.AgentWeights{Passing: 9, Warning: 3}},
		{node: "edge-4", nodeAddress: "10.0.0.4", service: "web", port: 8004, tags: http, status: consul.HealthCritical},
		{node: "edge-5", nodeAddress: "10.0.0.5", service: "web", port: 8005, tags: http, status: consul.HealthMaint},
		{node: "edge-6", nodeAddress: "10.0.0.6", service: "web", port: 8006},
		{node: "edge-1", nodeAddress: "10.0.0.1", service: "web", id: "web-again", port: 8001, tags: http},
		{node: "edge-1", nodeAddress: "10.0.0.1", service: "web", id: "web-side", address: "10.1.0.1", port: 8001, tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "odd-address", id: "name", address: "www.example.com", port: 80, tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "odd-address", id: "forged\n}", address: "10.0.0.7;}\nserver evil", port: 80, tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "odd-address", id: "number", address: "999.0.0.1", port: 80, tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "odd-address", id: "colons", address: "1:2::3::4", port: 80, tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "odd-address", id: "no-port", tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "odd name;{", port: 80, tags: http},
		{node: "edge-7", nodeAddress: "10.0.0.7", service: "dotted.name", port: 80, tags: http},
		{node: "odd node\n#", nodeAddress: "10.0.0.8", service: "heavy", port: 80, tags: http, weights: consul.AgentWeights{Passing: 60000, Warning: 1}},
		{node: "odd node\n#2", nodeAddress: "::1", service: "heavy", port: 80, tags: http, weights: consul.AgentWeights{Passing: 300, Warning: 1}},
		{node: "empty-1", nodeAddress: "10.0.0.20", service: "empty", port: 80, tags: http, status: consul.HealthCritical},
		{node: "db-1", nodeAddress: "10.0.0.10", service: "db", port: 5432, tagged: map[string]consul.ServiceAddress{
			"eth0": {Address: "10.0.0.10", Port: 5432}, "eth1": {Address: "10.1.0.10", Port: 5432},
		}},
		{node: "db-2", nodeAddress: "10.0.0.9", service: "db", port: 5432, tagged: map[string]consul.ServiceAddress{"eth0": {Address: "10.0.0.9", Port: 5432}}},
		{node: "db-3", nodeAddress: "fd00:0:0:1::3", service: "db", port: 5432},
		{node: "db-4", nodeAddress: "fd00::10", service: "db", port: 5432},
		{node: "db-5", nodeAddress: "fd00::9", service: "db", address: "db.example.com", port: 5432},
		{node: "db-6", nodeAddress: "10.0.0.12", service: "db", address: "fd00::9", port: 5432, tagged: map[string]consul.ServiceAddress{
			"lan_ipv6": {Address: "fd00::9", Port: 5432}, "eth:0": {Address: "fd00::1:9", Port: 5432},
		}},
		{node: "db-7", nodeAddress: "fd00::9", service: "db", address: "10.0.0.11", port: 5432, tagged: map[string]consul.ServiceAddress{
			"lan_ipv4": {Address: "10.0.0.11", Port: 5432}, "wan_ipv4": {Address: "198.51.100.11", Port: 5432},
		}},
		{node: "db-8", nodeAddress: "10.0.0.100", service: "db", port: 5432, tagged: map[string]consul.ServiceAddress{
			"eth10": {Address: "10.9.0.10"}, "eth2": {Address: "fd00::1"}, "Eth1": {Address: "10.9.0.1"}, "eth0.12": {Address: "::"}, "eth0.2": {Address: "10.9.0.2"},
		}},
		{node: "db-9", nodeAddress: "10.0.0.100", service: "db-2", port: 5432},
		{node: "db-9", nodeAddress: "10.0.0.100", service: "db-10", port: 5432},
		{node: "db-9", nodeAddress: "10.0.0.100", service: "DB_1", port: 5432},
		{node: "db-9", nodeAddress: "10.0.0.100", service: "123", port: 5432},
		{node: "scraped", nodeAddress: "10.0.0.30", service: "exporter", port: 9100, tags: []string{"metrics", "a,b", `"q"`, "<&>"}, meta: map[string]string{
			"metrics_port": "9200", "metrics_path": "/m?a=\"b\"", "metrics_scheme": "https", "rack-row": "7\n8",
		}},
		{node: "scraped-2", nodeAddress: "fd00::30", service: "exporter", port: 9100, tags: []string{"metrics"}, status: consul.HealthCritical},
		{node: "scraped-3", nodeAddress: "10.0.0.31", service: "exporter", tags: []string{"metrics"}},
		{node: "scraped-4", nodeAddress: "10.0.0.32", service: "exporter", port: 9100, tags: []string{"metrics"}, meta: map[string]string{"metrics_port": `1"`}},
	} {
		i.register(t, c)
	}
	return s
}
