package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigMeaning: what only the packages that use it can tell is wrong
// configuration, too.
func TestConfigMeaning(t *testing.T) {
	t.Parallel()
	bad := writeFile(t, "bad.hcl", `requires "a..b=x" {}
template "t" {
  contents    = "{{ if }}"
  destination = "/nonexistent/t"
  check       = ["true", "{{.Stagd}}"]
}
log_store {
  s3 {
    endpoint = "http://s3.example"
    bucket   = "logs"
  }
}
trigger "e" {
  event    = "node_dwon"
  workflow = "w"
}
workflow "w" {
  task "t" { command = ["true"] }
}
`)
	got := jorc(t, nil, "config", "validate", bad)
	lines := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
	if got.code != exitUsage || got.stdout != "" || len(lines) != 5 {
		t.Fatalf("got %+v, want exit 2 and five lines", got)
	}
	for i, want := range []string{
		"jorc: " + bad + `:1: requires: target "a..b=x"`,
		bad + `:2: template "t": check: argument "{{.Stagd}}": unknown {{.Stagd}}`,
		bad + `:13: trigger "e": there is no kind of event "node_dwon": it would never run; known are agent_down, `,
		`log_store: s3: invalid: endpoint "http://s3.example" is not encrypted`,
		bad + `:2: template "t": parse: `,
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d: got %s, want %s…", i+1, lines[i], want)
		}
	}
	got = jorc(t, nil, "config", "validate", "-o", "json", bad)
	if got.code != exitUsage || strings.Count(got.stdout, `"file": "`+bad+`"`) != 4 || !strings.Contains(got.stdout, `"line": 2`) {
		t.Errorf("JSON: got %+v", got)
	}
}

// TestConfigElsewhere: a configuration can be reviewed on a machine that lacks
// its templates.
func TestConfigElsewhere(t *testing.T) {
	t.Parallel()
	example := filepath.Join("..", "..", "testdata", "config", "example.hcl")
	got := jorc(t, nil, "config", "validate", example)
	if got.code != exitOK || !strings.Contains(got.stderr, `warning: `+example+`:35: template "upstreams": read the source: `) ||
		!strings.HasSuffix(got.stderr, "valid: 1 service, 1 template, 1 workflow, 1 trigger\n") {
		t.Errorf("got %+v", got)
	}
}
