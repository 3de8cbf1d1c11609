package main

import (
	"path/filepath"
	"strconv"
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

// TestConfigOnAnotherMachine: a configuration can be validated on a machine that
// lacks its files and programs; each is a warning.
func TestConfigOnAnotherMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := writeFile(t, "jorc.hcl", strings.ReplaceAll(`
service "web" {
  check {
    script   = ["DIR/check.sh"]
    interval = "10s"
  }
}
template "a" {
  source      = "DIR/a.ctmpl"
  destination = "DIR/no/a"
  check       = ["jorc-no-such-program", "{{.Staged}}"]
  reload      = ["sh", "-c", "true"]
}
template "b" {
  contents    = "{{ env \"HOME\" }}{{ with envOrDefault \"APP_MODE\" \"x\" }}{{ . }}{{ end }}{{ key (env \"ZONE\" | print) }}"
  destination = "DIR/b"
}
template_options {
  allow_env = ["APP_*"]
}
workflow "w" {
  task "t" {
    command = ["./run.sh"]
    dir     = "DIR"
    only_if = "DIR/only-if.sh"
  }
}
control {
  socket = "DIR/control.sock"
  group  = "no-such-group"
}
fleetlock {
  users = ["root", "no-such-user"]
}
`, "DIR", dir))
	got := jorc(t, nil, "config", "validate", file)
	if got.code != exitOK || !strings.HasSuffix(got.stderr, "valid: 1 service, 2 templates, 1 workflow\n") {
		t.Fatalf("got %+v, want exit 0", got)
	}
	want := []string{
		file + `:8: template "a": read the source: `,
		`service "web": check: program "` + dir + `/check.sh": no such file or directory`,
		file + `:8: template "a": check: program "jorc-no-such-program": executable file not found in $PATH`,
		file + `:8: template "a": the directory ` + dir + `/no of its destination does not exist`,
		"control: only root and the agent's user can use the socket: group: unknown group no-such-group",
		file + `:32: fleetlock: user "no-such-user": there is no such user`,
		`workflow "w": task "t": program "./run.sh": no such file or directory`,
		`workflow "w": task "t": only_if: program "` + dir + `/only-if.sh": no such file or directory`,
		file + `:14: template "b" reads the environment variable HOME, which is always unset: template_options { allow_env }`,
		file + `:14: template "b" reads the environment variable ZONE, which is always unset`,
	}
	for _, text := range want {
		if !strings.Contains(got.stderr, "jorc: warning: "+text) {
			t.Errorf("no warning %q in\n%s", text, got.stderr)
		}
	}
	if n := strings.Count(got.stderr, "jorc: warning: "); n != len(want) {
		t.Errorf("%d warnings, want %d:\n%s", n, len(want), got.stderr)
	}
}

// TestRenderWarnsOfHiddenVariables: a variable that allow_env hides is not
// silently empty.
func TestRenderWarnsOfHiddenVariables(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := "template \"t\" {\n contents = \"{{ env \\\"HOME\\\" }}x\"\n destination = \"" + dir + "/out\"\n}\n"
	got := jorc(t, map[string]string{"JORC_STATE_DIR": dir + "/state"}, "render", "--config", writeFile(t, "jorc.hcl", conf))
	if got.code != exitOK || !strings.Contains(got.stderr, "[WARN]") || !strings.Contains(got.stderr, "the environment variable HOME, which is always unset") {
		t.Errorf("got %+v, want exit 0 and a warning", got)
	}
}

// TestMissingToken: a token file that cannot be read is wrong configuration, not
// a denial by Consul.
func TestMissingToken(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "token")
	empty := writeFile(t, "token", "\n")
	for _, file := range []string{absent, empty} {
		for _, line := range []string{"update current", "cluster members", "wait web", "service list", "ping"} {
			args := append([]string{"--token-file", file}, strings.Fields(line)...)
			if got := jorc(t, nil, args...); got.code != exitUsage || !strings.Contains(got.stderr, file) || strings.Contains(got.stderr, "denied") {
				t.Errorf("jorc %s: got %+v, want exit 2 and the file", line, got)
			}
		}
		conf := writeFile(t, "jorc.hcl", "consul {\n  token_file = "+strconv.Quote(file)+"\n}\n"+
			"template \"t\" {\n  contents = \"{{ key \\\"k\\\" }}\"\n  destination = "+strconv.Quote(filepath.Join(t.TempDir(), "out"))+"\n}\n"+
			"workflow \"w\" {\n  task \"t\" { script = \"echo {{ .Param \\\"p\\\" }}\" }\n}\n")
		env := map[string]string{"JORC_STATE_DIR": t.TempDir(), "JORC_CONFIG": conf}
		for _, line := range []string{"render --timeout 5s", "render --diff --timeout 5s", "agent --once --config " + conf, "workflow run w"} {
			if got := jorc(t, env, strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.stderr, file) || strings.Contains(got.stderr, "denied") {
				t.Errorf("jorc %s: got %+v, want exit 2 and the file", line, got)
			}
		}
	}
}

// TestConfigThatNeverWorks: what the agent starts with and can never work is a problem of
// 'config validate'; a workflow that only something else needs is a warning.
func TestConfigThatNeverWorks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`static { workflow = "converg" }`:                          `:1,21: Unknown workflow: The static block names the workflow "converg", which is not defined. Did you mean "converge"?`,
		`service "web.api" { port = 80 }`:                          `:1,9: Invalid service: Consul's DNS has no answer for "web.api", so 'jorc wait' never finds it: it contains '.'.`,
		`service "web api" { port = 80 }`:                          `it contains ' '.`,
		`service "wéb" { port = 80 }`:                              `it contains 'é'.`,
		`service "` + strings.Repeat("a", 64) + `" { }`:            `has 64 bytes, a part of a DNS name holds 63.`,
		`service "web_api" { port = 80 }`:                          "",
		`service "` + strings.Repeat("a", 63) + `" { }`:            "",
		"static {\nworkflow = \"converge\"\nvalidation = \"v\"\n}": "",
	} {
		file := writeFile(t, "agent.hcl", text+"\nworkflow \"converge\" {\n  task \"t\" {\n    command = [\"true\"]\n  }\n}\n")
		got := jorc(t, nil, "config", "validate", file)
		asJSON := jorc(t, nil, "config", "validate", "-o", "json", file)
		if want == "" {
			if got.code != 0 || asJSON.code != 0 {
				t.Errorf("%s: got %+v, want valid", text, got)
			}
			continue
		}
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "jorc: "+file) || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: got %+v, want exit 2 with %s", text, got, want)
		}
		if asJSON.code != exitUsage || !strings.Contains(asJSON.stdout, `"valid": false`) {
			t.Errorf("%s: got %+v, want exit 2 and JSON that says so", text, asJSON)
		}
	}
}
