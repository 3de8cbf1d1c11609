package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestExportOfHostileServices: what a format's reader would evaluate is left out, with one
// line however often a host registers it, and the others are exported.
func TestExportOfHostileServices(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	register := func(node, id, name, address string) {
		t.Helper()
		if err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.6", SkipNodeUpdate: id != "0", Service: &consul.AgentService{ID: id, Service: name, Address: address, Port: 80},
		}); err != nil {
			t.Fatal(err)
		}
	}
	register("good", "0", "web", "10.0.0.1")
	for i := range 20 {
		register("evil", fmt.Sprint(i), "web", "%{lookup('db::password')}")
	}
	register("evil", "path", "../x", "10.0.0.6")
	register("evil", "line", "line\u2028end", "10.0.0.6")
	for format, reason := range map[string]string{
		"hiera": "Hiera would evaluate", "prometheus": "neither an IP address nor", "hosts": "neither an IP address nor", "json": "",
	} {
		got := jorc(t, env, "service", "export", "--format", format)
		if got.code != exitOK || !strings.Contains(got.stdout, "10.0.0.1") || format != "json" && strings.Contains(got.stdout, "%{") {
			t.Errorf("%s: %+v", format, got)
		}
		unreadable, warning, _ := strings.Cut(got.stderr, "\n")
		if !strings.Contains(unreadable, `left out 2 services with a name that Consul's HTTP API cannot read`) {
			t.Errorf("%s: stderr %q", format, got.stderr)
		}
		if reason != "" && (strings.Count(warning, "\n") != 1 || !strings.Contains(warning, reason) || !strings.Contains(warning, `service "web" on node "evil"`) || !strings.Contains(warning, "and 19 more")) {
			t.Errorf("%s: the warning is %q", format, warning)
		}
		if reason == "" && warning != "" {
			t.Errorf("%s: the warning is %q", format, warning)
		}
	}
}
