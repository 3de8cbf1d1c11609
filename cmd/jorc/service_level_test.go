package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/templates"
)

// TestWhatAWaitLetsThroughIsFound: of instances in every state of health, a wait
// counts the instances that resolve, every export and the shipped templates show.
func TestWhatAWaitLetsThroughIsFound(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	env["JORC_DNS_ADDR"] = s.DNSAddr
	for i, status := range []string{consul.HealthPassing, consul.HealthWarning, consul.HealthCritical, consul.HealthPassing} {
		n := i + 1
		err := s.Client().RegisterService(t.Context(), &consul.ServiceRegistration{
			ID: fmt.Sprintf("web-%d", n), Name: "web", Address: fmt.Sprintf("10.0.0.%d", n), Port: 8000 + n, Tags: []string{"http", "metrics"},
			Check: &consul.ServiceCheck{TTL: "1h", Status: status},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Client().SetMaintenance(t.Context(), "web-4", true, "test"); err != nil {
		t.Fatal(err)
	}
	if got := jorc(t, env, "wait", "--for", "addressable", "web=4"); got.code != 0 {
		t.Fatalf("four instances: %+v", got)
	}
	consultest.Eventually(t, "the states in the catalog", func(ctx context.Context) error {
		entries, _, err := s.Client().HealthService(ctx, "web", "", false, consul.Query{})
		var states []string
		for _, e := range entries {
			states = append(states, e.Checks.AggregatedStatus())
		}
		if slices.Sort(states); err == nil && !slices.Equal(states, []string{"critical", "maintenance", "passing", "warning"}) {
			err = fmt.Errorf("they are %v", states)
		}
		return err
	})

	for _, test := range []struct {
		level, health string
		want          []string
	}{
		{"", "", []string{"10.0.0.1", "10.0.0.2"}},
		{"functional", `"passing,warning"`, []string{"10.0.0.1", "10.0.0.2"}},
		{"addressable", `"any"`, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}},
	} {
		run := func(args ...string) result {
			t.Helper()
			if test.level != "" {
				args = slices.Insert(args, len(args), "--for", test.level)
			}
			return jorc(t, env, args...)
		}
		shows := func(what, text string) {
			t.Helper()
			found := regexp.MustCompile(`10\.0\.0\.\d`).FindAllString(text, -1)
			slices.Sort(found)
			if found = slices.Compact(found); !slices.Equal(found, test.want) {
				t.Errorf("--for %q: %s shows %v, want %v:\n%s", test.level, what, found, test.want, text)
			}
		}
		if got := run("wait", fmt.Sprintf("web=%d", len(test.want)), "--tries", "1"); got.code != 0 {
			t.Errorf("--for %q: a wait for %d instances: %+v", test.level, len(test.want), got)
		}
		if got := run("wait", fmt.Sprintf("web=%d", len(test.want)+1), "--tries", "1"); got.code != exitTimeout {
			t.Errorf("--for %q: a wait for %d instances: %+v, want exit 124", test.level, len(test.want)+1, got)
		}
		shows("resolve", run("service", "resolve", "web").stdout)
		for _, format := range catalog.ExportFormats() {
			shows("export "+format, run("service", "export", "--format", format).stdout)
		}
		for _, name := range []string{"nginx-upstreams.ctmpl", "haproxy-backends.ctmpl", "hosts.ctmpl", "hiera-services.yaml.ctmpl", "prometheus-file-sd.json.ctmpl"} {
			text, err := templates.FS.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			health := test.health
			if health == "" && name == "prometheus-file-sd.json.ctmpl" {
				continue // its default is addressable: Prometheus is to see that an instance is down
			}
			shows(name, rendered(t, env, withHealth(string(text), health)))
		}
	}
	for _, args := range [][]string{{"service", "resolve", "web", "--for", "reachable"}, {"service", "export", "--format", "json", "--for", "x"}} {
		if got := jorc(t, env, args...); got.code != exitUsage || !strings.Contains(got.stderr, "must be one of functional or addressable") {
			t.Errorf("jorc %s: %+v", strings.Join(args, " "), got)
		}
	}
}

// withHealth sets the parameter of a shipped template that chooses instances.
func withHealth(text, health string) string {
	if health == "" {
		return text
	}
	return regexp.MustCompile(`\{\{- \$health := "[a-z,]*" -\}\}`).ReplaceAllLiteralString(text, "{{- $health := "+health+" -}}")
}

// rendered is what 'jorc render' makes of a template's text.
func rendered(t *testing.T, env map[string]string, text string) string {
	t.Helper()
	dir := t.TempDir()
	source, out := filepath.Join(dir, "t.ctmpl"), filepath.Join(dir, "out")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("state_dir = %q\ntemplate \"t\" {\n  source = %q\n  destination = %q\n}\n", filepath.Join(dir, "state"), source, out)
	if got := jorc(t, env, "render", "--config", writeFile(t, "jorc.hcl", conf)); got.code != 0 {
		t.Fatalf("render: %+v", got)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
