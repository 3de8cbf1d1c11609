package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
)

func TestNeedsOf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jorc.hcl")
	err := os.WriteFile(file, []byte(`
cluster = "prod"
service "web" { port = 80 }
requires "v1.mysql@dc2" {}
requires "cache=2" {}
requires "api.example.com." {}
static {
  workflow = "converge"
  paths = ["/etc/static"]
}
template "up" {
  contents      = "{{ key \"a/b\" }}{{ range ls \"dir\" }}{{ end }}"
  destination   = "/tmp/up"
  min_instances = { web = 1, app = 1 }
  slot          = "edge"
}
workflow "converge" {
  task "t" {
    command = ["true"]
    requires "db" {}
  }
}
trigger "k" {
  prefix   = "watched/"
  workflow = "converge"
}
member { roles = ["db"] }
orchestrator {}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{file}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range needsOf(c, "host", true) {
		line := n.rule()
		if n.optional {
			line += " optional"
		}
		got = append(got, line)
	}
	want := []string{
		`service "jorc" { policy = "write" }`,
		`service "web" { policy = "write" }`,
		`service "cache" { policy = "read" }`,
		`key "a/b" { policy = "read" }`,
		`key_prefix "dir/" { policy = "read" }`,
		`service "app" { policy = "read" }`,
		`service "web" { policy = "read" }`,
		`service "db" { policy = "read" }`,
		`key_prefix "watched/" { policy = "read" }`,
		`session "host" { policy = "write" }`,
		`key "jorc/prod/slots/group/edge" { policy = "write" }`,
		`key_prefix "jorc/prod/slots/claim/host/" { policy = "write" }`,
		`agent "host" { policy = "read" } optional`,
		`node "host" { policy = "read" } optional`,
		`key "jorc/prod/nodes/host" { policy = "write" } optional`,
		`node "host" { policy = "write" } optional`,
		`key "jorc/prod/host/host/member" { policy = "write" } optional`,
		`key "jorc/prod/current/leaders" { policy = "write" } optional`,
		`key "jorc/prod/elect/lock" { policy = "write" } optional`,
		`key "jorc/prod/host/host/results" { policy = "write" } optional`,
		`key_prefix "jorc/prod/runs/.waits/host/" { policy = "write" } optional`,
		`key "jorc/prod/current_version" { policy = "write" } optional`,
		`key "jorc/prod/current/control" { policy = "write" } optional`,
		`key "jorc/prod/current/version" { policy = "write" } optional`,
		`key "jorc/prod/changes/version/state" { policy = "write" } optional`,
		`key_prefix "jorc/prod/host/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/running_version/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/status/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/stages/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/runs/" { policy = "write" } optional`,
		`key "jorc/prod/orchestrate/lock" { policy = "write" } optional`,
		`key_prefix "jorc/prod/orchestrate/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/view/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/events/" { policy = "write" } optional`,
		`key_prefix "jorc/prod/history/" { policy = "write" } optional`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

func TestTemplateReads(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{`{{ key "a" }} {{ keyOrDefault "b" "x" }} {{ keyExists "/c@dc2" }}`, "key:read:a key:read:b"},
		{`{{ range service "v1.web~near|passing" }}{{ .Address }}{{ end }}`, "service:read:web"},
		{`{{ range service "web@dc2" }}{{ end }}{{ with service "db?ns=x" }}{{ else }}{{ ls "d/" }}{{ end }}`, "service:read:db key:read:d/"},
		{`{{ "web" | service | toJSON }}{{ len (service "api") }}`, "service:read:web service:read:api"},
		{`{{ $n := "x" }}{{ key $n }}{{ key (printf "a/%s" $n) }}{{ $n | tree }}`, ""},
		{`{{ if (keyExists "on") }}{{ (index (service "web") 0).Port }}{{ end }}`, "key:read:on service:read:web"},
		{`{{ define "sub" }}{{ tree "t" }}{{ end }}{{ template "sub" (key "k") }}`, "key:read:k key:read:t/"},
		{`{{ node "n1" }}{{ node }}{{ nodes }}{{ services }}{{ services "@dc2" }}`, "node:read:n1 node:read: service:read:"},
		{`{{ caLeaf "web" }}{{ connect "api" }}{{ ls "/" }}`, "service:write:web service:read:api key:read:"},
		{`{{ key "a"`, ""},
		{`{{ . | key }}{{ key }}`, ""},
	} {
		var got []string
		for _, r := range templateReads(&config.Template{Name: "t", Contents: test.text}) {
			got = append(got, r.Resource+":"+r.Access+":"+r.Segment)
		}
		if joined := strings.Join(got, " "); joined != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.text, joined, test.want)
		}
	}
	file := filepath.Join(t.TempDir(), "t.ctmpl")
	if err := os.WriteFile(file, []byte(`<< key "a" >>`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := templateReads(&config.Template{Source: file, LeftDelim: "<<", RightDelim: ">>"}); len(got) != 1 {
		t.Errorf("a file with its own delimiters: %v", got)
	}
	if got := templateReads(&config.Template{Source: "/no/such/file"}); got != nil {
		t.Errorf("no file: %v", got)
	}
}

func FuzzTemplateReads(f *testing.F) {
	f.Add(`{{ range service "v1.web" }}{{ key "a@b" }}{{ else }}{{ "x" | ls }}{{ end }}`)
	f.Add(`{{ with $x := (tree "") }}{{ template "t" . }}{{ end }}{{ define "t" }}{{ break }}{{ end }}`)
	f.Fuzz(func(_ *testing.T, text string) {
		templateReads(&config.Template{Contents: text})
	})
}

func TestServiceIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"web": "web", "web=3": "web", "a.b.web": "web", "web~_agent": "web", "web|passing,warning": "web",
		"web@dc1": "", "web@dc1=2": "", "www.example.com.": "", "www.example.com.=2": "", "": "",
	} {
		if got, _ := serviceIn(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
