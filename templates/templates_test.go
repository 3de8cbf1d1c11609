package templates_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/templates"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares what a template made with a file below testdata. The test's
// own Consul, which has other names and addresses each time, is a part of it.
func golden(t *testing.T, s *consultest.Server, name, got string) {
	t.Helper()
	got = strings.NewReplacer(s.Node, "CONSUL", s.IP, "127.0.0.2").Replace(got)
	file := filepath.Join("testdata", strings.TrimSuffix(name, ".ctmpl")+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the test with -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	s := servers(t)
	names, err := fs.Glob(templates.FS, "*.ctmpl")
	if err != nil || len(names) != 5 {
		t.Fatalf("%d templates %v, %v; want 5", len(names), names, err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := render(t, s, text(t, name))
			golden(t, s, name, got)
			switch {
			case strings.HasPrefix(name, "hosts"):
				checkHosts(t, got)
			case strings.HasPrefix(name, "hiera"):
				checkHiera(t, s, got)
			case strings.HasPrefix(name, "prometheus"):
				checkTargets(t, got)
			}
		})
	}
}

// checkHosts reads every line as the C library does.
func checkHosts(t *testing.T, got string) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(got) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := netip.ParseAddr(fields[0]); err != nil || len(fields) < 2 {
			t.Errorf("%q: %v; want an address and names", line, err)
		}
		for _, name := range fields[1:] {
			if seen[fields[0]+name] {
				t.Errorf("%q says again what another line says", line)
			}
			seen[fields[0]+name] = true
		}
	}
}

// checkHiera wants the bytes of the export, without the services that templates
// cannot ask for.
func checkHiera(t *testing.T, s *consultest.Server, got string) {
	t.Helper()
	var parsed map[string][]string
	if err := yaml.Unmarshal([]byte(got), &parsed); err != nil || len(parsed) == 0 {
		t.Fatalf("not YAML: %v:\n%s", err, got)
	}
	snapshot, err := catalog.Fetch(t.Context(), s.Client(), catalog.Functional, consul.Query{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Instances = slices.DeleteFunc(snapshot.Instances, func(i catalog.ServiceInstance) bool {
		return strings.ContainsAny(i.Service, " .")
	})
	want, _, err := catalog.Export(snapshot, catalog.FormatHiera)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("not what `jorc service export --format hiera` writes (-export +template):\n%s", diff)
	}
}

func checkTargets(t *testing.T, got string) {
	t.Helper()
	var groups []struct {
		Targets []string
		Labels  map[string]string
	}
	if err := json.Unmarshal([]byte(got), &groups); err != nil || len(groups) == 0 {
		t.Fatalf("not JSON: %v:\n%s", err, got)
	}
	for _, g := range groups {
		if len(g.Targets) != 1 || g.Labels["job"] == "" {
			t.Errorf("group %+v; want one target and its job", g)
		}
	}
}

// TestParameters changes what the headers say may be changed.
func TestParameters(t *testing.T) {
	t.Parallel()
	s := servers(t)
	// A name that Consul itself does not answer for.
	instance{node: "edge-7", nodeAddress: "10.0.0.7", service: "line\n}", tags: []string{"http"}}.register(t, s.Client())
	for _, tc := range []struct {
		template, parameter, from, to string
		want, absent                  []string
	}{
		{"nginx-upstreams.ctmpl", "tag", `"http"`, `""`, []string{"upstream db {", "server 10.0.0.6:8006;"}, nil},
		{"nginx-upstreams.ctmpl", "tag", `"http"`, "`it's \"v2\"`", []string{"upstream web {\n    server [fd00::2]:8002;\n}"}, []string{"upstream heavy"}},
		{"nginx-upstreams.ctmpl", "tag", `"http"`, `"none"`, []string{"# Written by jorc"}, []string{"upstream"}},
		{"nginx-upstreams.ctmpl", "health", `"passing,warning"`, `"any"`, []string{`# left out: service "dotted.name" has a name that templates cannot ask for, and 2 more`, "10.0.0.4:8004"}, nil},
		{"nginx-upstreams.ctmpl", "always", `""`, `"web  later"`, []string{"upstream later {\n    server 127.0.0.1:1 down;", "upstream web {\n    server"}, nil},
		{"nginx-upstreams.ctmpl", "health", `"passing,warning"`, `"passing"`, []string{"10.0.0.1:8001"}, []string{"10.0.0.3:8003"}},
		{"haproxy-backends.ctmpl", "always", `""`, `"later"`, []string{"backend later\n"}, nil},
		{"haproxy-backends.ctmpl", "tag", `"http"`, `""`, []string{"backend db\n", "server db-1-5432 10.0.0.10:5432 weight 1"}, nil},
		{"hosts.ctmpl", "services", "true", "false", []string{"10.0.0.1\tedge-1 edge-1.node.consul\n"}, []string{".service."}},
		{"hosts.ctmpl", "tag", `""`, `"http"`, []string{"10.0.0.1\tedge-1 edge-1.node.consul web.service.consul\n"}, []string{"db.service"}},
		{"hiera-services.yaml.ctmpl", "tag", `""`, `"none"`, []string{"---\n{}\n"}, nil},
		{"prometheus-file-sd.json.ctmpl", "tag", `"metrics"`, `"none"`, []string{"[\n]\n"}, nil},
		{"prometheus-file-sd.json.ctmpl", "health", `"any"`, `"passing"`, []string{"10.0.0.30:9200"}, []string{"fd00::30"}},
	} {
		t.Run(tc.template+" "+tc.parameter+" "+tc.to, func(t *testing.T) {
			t.Parallel()
			got := render(t, s, set(t, text(t, tc.template), tc.parameter, tc.from, tc.to))
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing in:\n%s", want, got)
				}
			}
			for _, absent := range tc.absent {
				if strings.Contains(got, absent) {
					t.Errorf("%q is not wanted in:\n%s", absent, got)
				}
			}
		})
	}
}

// TestAlwaysKeepsItsLastInstances: a service of $always that has left the
// catalog altogether stays in the file as long as the guards say.
func TestAlwaysKeepsItsLastInstances(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	http := []string{"http"}
	instance{node: "edge-1", nodeAddress: "10.0.0.1", service: "web", port: 8001, tags: http}.register(t, c)
	var list []config.Template
	for _, name := range []string{"nginx-upstreams.ctmpl", "haproxy-backends.ctmpl"} {
		list = append(list, config.Template{
			Name: name, Contents: set(t, text(t, name), "always", `""`, `"web"`),
			Destination: filepath.Join(t.TempDir(), "rendered"), EmptyAfter: time.Hour,
		})
	}
	run(t, engine(t, s, c, list...))
	wantAll := func(what ...string) {
		t.Helper()
		for _, one := range list {
			consultest.Eventually(t, one.Name+" to have "+strings.Join(what, ", "), func(context.Context) error {
				got, err := os.ReadFile(one.Destination)
				for _, w := range what {
					if err == nil && !strings.Contains(string(got), w) {
						err = fmt.Errorf("it holds:\n%s", got)
					}
				}
				return err
			})
		}
	}
	wantAll("10.0.0.1:8001")
	if err := c.CatalogDeregister(t.Context(), &consul.CatalogDeregister{Node: "edge-1"}); err != nil {
		t.Fatal(err)
	}
	instance{node: "edge-2", nodeAddress: "10.0.0.2", service: "api", port: 8002, tags: http}.register(t, c)
	wantAll("10.0.0.2:8002", "10.0.0.1:8001")
}
