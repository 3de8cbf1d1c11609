package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/fixture"
)

// TestShippedTemplates: the templates that ship pass their tests, without a Consul.
func TestShippedTemplates(t *testing.T) {
	t.Parallel()
	got := jorc(t, nil, "template", "test", "../../templates/tests", "-o", "json")
	var results []fixture.Result
	if err := json.Unmarshal([]byte(got.stdout), &results); err != nil || got.code != exitOK {
		t.Fatalf("template test: %+v", got)
	}
	tested := map[string]bool{}
	for _, r := range results {
		tested[r.Template] = true
	}
	if len(tested) != 5 {
		t.Errorf("tests are of the templates %v; want five", tested)
	}
}

// TestTemplateTest: exit codes, the diff on stdout, the file for a CI system.
func TestTemplateTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := jorc(t, nil, "template", "test", dir); got.code != exitUsage || !strings.Contains(got.stderr, "no fixture in "+dir) {
		t.Errorf("without fixtures: %+v", got)
	}
	put("t.ctmpl", "one\n{{ key \"k\" }}\n")
	put("a.test.hcl", "source = \"t.ctmpl\"\nkeys = { k = \"two\" }\nexpect {\n  file = \"a.expected\"\n}\n")
	put("a.expected", "one\ntwo\n")
	if got := jorc(t, nil, "template", "test", dir, "-o", "plain"); got.code != exitOK || got.stdout != "passed\t"+dir+"/a.test.hcl\t\n" {
		t.Errorf("a fixture that passes: %+v", got)
	}
	put("a.expected", "one\ntow\n")
	junit := filepath.Join(dir, "results.xml")
	got := jorc(t, nil, "template", "test", dir, "--junit", junit)
	if got.code != exitFailed || !strings.Contains(got.stdout, "@@ -1,2 +1,2 @@ t.ctmpl:2\n one\n-tow\n+two\n") || !strings.Contains(got.stderr, "1 of 1 fixture failed") {
		t.Errorf("a fixture that fails: %+v", got)
	}
	if data, err := os.ReadFile(junit); err != nil || !strings.Contains(string(data), `failures="1"`) {
		t.Errorf("%s: %s, %v", junit, data, err)
	}
	put("b.test.hcl", "source = \"t.ctmpl\"\n")
	if got := jorc(t, nil, "template", "test", dir); got.code != exitUsage || !strings.Contains(got.stderr, "1 fixture of 2 cannot be used, 1 failed") {
		t.Errorf("a broken fixture: %+v", got)
	}
	// A fixture among configuration files is not taken for one.
	put("jorc.hcl", "template \"named\" {\n  source      = \"t.ctmpl\"\n  destination = \"/etc/t\"\n}\n")
	put("b.test.hcl", "template = \"named\"\nkeys = { k = \"two\" }\nexpect {\n  contains = [\"two\"]\n}\n")
	if got := jorc(t, nil, "template", "test", "--config", dir, filepath.Join(dir, "b.test.hcl")); got.code != exitOK {
		t.Errorf("a fixture of a template of --config: %+v", got)
	}
	if got := jorc(t, nil, "template", "test", filepath.Join(dir, "b.test.hcl"), "-o", "plain"); got.code != exitUsage || !strings.Contains(got.stdout, "give --config PATH") {
		t.Errorf("a fixture without a configuration: %+v", got)
	}
}

// TestTemplateRecord: what is recorded passes its test without Consul, is what the agent renders
// but for secrets, and holds none of them.
func TestTemplateRecord(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), `
vault { address = "`+vaultSecret(t)+`" }
template_options { allow_env = ["APP_*"] }
template "app" {
  contents = <<EOT
{{ range service "consul|any" }}{{ .Node }} {{ end }}{{ range services }}{{ .Name }} {{ end }}{{ with node }}{{ .Node.Node }}{{ end }}
{{ key "app/greeting" }} {{ range ls "app" }}{{ .Key }} {{ end }}{{ keyOrDefault "absent" "none" }} {{ param "size" }} {{ env "APP_MODE" }}
{{ if false }}
{{ end }}{{ key "app/password" }} {{ param "pin" }} {{ with secret "secret/data/db" }}{{ .Data.data.password }}{{ .Data.data.port }}{{ end }} {{ env "APP_TOKEN" }}
EOT
  destination = "DIR/out"
}
`)
	m.env = append(m.env, "VAULT_TOKEN=root", "APP_MODE=blue", "APP_TOKEN=tok3n")
	m.put("app/greeting", "hello")
	m.put("app/password", "k3y")
	m.must("cluster", "init", "default")
	m.write("schema.json", `{"secret": true}`)
	m.must("cluster", "profile", "schema", "set", "pin", "schema.json")
	m.must("cluster", "profile", "set", "pin", "p1n")
	m.must("cluster", "profile", "set", "size", "4")
	conf := m.path("jorc.hcl")
	m.must("render", "--config", conf)
	recorded := m.must("template", "record", "app", "--config", conf)
	if want := m.path("app.test.hcl") + "\n" + m.path("app.expected") + "\n"; recorded.stdout != want {
		t.Errorf("record prints %q, want %q", recorded.stdout, want)
	}
	text, expected := m.read("app.test.hcl"), m.read("app.expected")
	for _, secret := range []string{"hunter2", "5432", "k3y", "p1n", "tok3n"} {
		if strings.Contains(text+expected, secret) {
			t.Errorf("the secret %s is recorded:\n%s\n%s", secret, text, expected)
		}
	}
	public := func(s string) string { return strings.Join(strings.SplitAfter(s, "\n")[:2], "") }
	if public(expected) != public(m.read("out")) {
		t.Errorf("recorded %q, the agent renders %q", public(expected), public(m.read("out")))
	}
	live := m.env
	m.env = append(slices.Clone(live), "CONSUL_HTTP_ADDR=127.0.0.1:1")
	if got := m.run("template", "test", "--config", conf); got.code != exitOK {
		t.Errorf("the test of what was recorded: %+v\n%s", got, text)
	}
	m.env = live
	if got := m.run("template", "record", "app", "--config", conf); got.code != exitFailed || !strings.Contains(got.stderr, "--force") {
		t.Errorf("record over files: %+v", got)
	}
	m.must("template", "record", "app", "--config", conf, "--force")
	if got := m.run("template", "record", "ap", "--config", conf); got.code != exitFailed || !strings.Contains(got.stderr, "app") {
		t.Errorf("record of an unknown template: %+v", got)
	}
}
