package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jorc/jorc/internal/config"
)

func TestSinks(t *testing.T) {
	t.Parallel()
	got := load(t, config.Options{}, write(t, "c.hcl", `
orchestrator {
  sink "log" {}
  sink "file" { path = "/var/log/jorc/events.jsonl" }
  sink "webhook" {
    url         = "https://hooks.example/in?key=x"
    secret_file = "/etc/jorc/hook-secret"
  }
  sink "webhook" { url = "http://127.0.0.1:9000/" }
}`))
	want := []config.EventSink{
		{Kind: "log"},
		{Kind: "file", Path: "/var/log/jorc/events.jsonl"},
		{Kind: "webhook", URL: "https://hooks.example/in?key=x", SecretFile: "/etc/jorc/hook-secret"},
		{Kind: "webhook", URL: "http://127.0.0.1:9000/"},
	}
	if diff := cmp.Diff(want, got.Orchestrator.Sinks); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, test := range map[string]struct{ text, want string }{
		"unknown":          {`sink "webhok" {}`, `Did you mean "webhook"?`},
		"twice":            {"sink \"log\" {}\nsink \"log\" {}", "Duplicate sink"},
		"one file twice":   {"sink \"file\" { path = \"/a\" }\nsink \"file\" { path = \"/a\" }", "Duplicate sink"},
		"no path":          {`sink "file" {}`, `needs the argument "path"`},
		"no address":       {`sink "webhook" {}`, `needs the argument "url"`},
		"not an address":   {`sink "webhook" { url = "hooks.example/in" }`, "must begin with http://"},
		"no host":          {`sink "webhook" { url = "https:///in" }`, "names no host"},
		"secret":           {`sink "webhook" { url = "http://a/" secret = "x" }`, ""},
		"other's argument": {`sink "log" { path = "/a" }`, "Unsupported argument"},
	} {
		_, err := config.Load([]string{write(t, "c.hcl", "orchestrator {\n"+test.text+"\n}")}, config.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v; want %q", name, err, test.want)
		}
	}
}
