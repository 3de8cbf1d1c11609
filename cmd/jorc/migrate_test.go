package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestMigrateRendersTheSame: consul-template renders with its own configuration;
// after the migration jorc finds nothing to change in the files.
func TestMigrateRendersTheSame(t *testing.T) {
	t.Parallel()
	program := consulTemplate(t)
	s := consultest.Start(t)
	s.Run("kv", "put", "app/name", "one")
	s.Run("kv", "put", "app/limits/cpu", "4")
	for name, tt := range map[string]struct{ file, text string }{
		"HCL": {"ct.hcl", `
default_delimiters { left = "[[" right = "]]" }
log_level = "err"
# The name.
template {
  source      = "DIR/name.ctmpl"
  destination = "DIR/out/name.conf"
  perms       = 0600
  command     = "true && true"
}
template {
  contents             = <<EOF
<< range ls "app/limits" >><< .Key >>=<< .Value >> ${HOME} %{if}
<< end >><< env "PATH" >>
EOF
  left_delimiter       = "<<"
  right_delimiter      = ">>"
  destination          = "DIR/out/deep/limits.conf"
  error_on_missing_key = true
  wait { min = "1s" }
}`},
		"JSON": {"ct.json", `{
  "max_stale": "1m", "wait": "1s:2s", "consul": {"retry": {"attempts": 3}},
  "template": [
    {"source": "DIR/name.ctmpl", "left_delimiter": "[[", "right_delimiter": "]]", "destination": "DIR/out/name.conf", "perms": "0640", "command": ["true", "x"]},
    {"contents": "{{ range service \"consul\" }}{{ .Port }} {{ end }}\t\"é\"\n", "destination": "DIR/out/consul.txt"}
  ]
}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{tt.file: tt.text, "name.ctmpl": "name = [[ key \"app/name\" ]]\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			file, out := filepath.Join(dir, tt.file), filepath.Join(dir, "jorc")
			if text, err := exec.CommandContext(t.Context(), program, "-once", "-config="+file, "-consul-addr="+s.HTTPAddr).CombinedOutput(); err != nil {
				t.Fatalf("consul-template: %v\n%s", err, text)
			}
			env := map[string]string{"JORC_STATE_DIR": filepath.Join(dir, "state"), "CONSUL_HTTP_ADDR": ""}
			if got := jorc(t, env, "migrate", "consul-template", file, "--out", out, "--", "-consul-addr="+s.HTTPAddr); got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, "render --diff") {
				t.Fatalf("migrate: got %+v", got)
			}
			converted := filepath.Join(out, "consul-template.hcl")
			if got := jorc(t, env, "render", "--diff", "--config", converted); got.code != 0 || got.stdout != "" {
				t.Errorf("render --diff: got %+v, want no difference", got)
			}
			name := filepath.Join(dir, "out", "name.conf")
			if err := os.WriteFile(name, []byte("name = two\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := jorc(t, env, "render", "--diff", "--config", converted); got.code != exitFailed || !strings.Contains(got.stdout, "+name = one") {
				t.Errorf("render --diff of a changed file: got %+v, want exit 1 and the difference", got)
			}
		})
	}
}

// TestMigrateCommand: where the result goes, and the exit codes.
func TestMigrateCommand(t *testing.T) {
	t.Parallel()
	good := writeFile(t, "good.hcl", "template {\n  contents = \"x\"\n  destination = \"/tmp/out\"\n}\n")
	lossy := writeFile(t, "lossy.hcl", "pid_file = \"/run/x\"\n")
	bad := writeFile(t, "bad.hcl", "consul {\n")
	invalid := writeFile(t, "invalid.hcl", "template {\n  contents = \"x\"\n  destination = \"/tmp/\"\n}\n")
	out := filepath.Join(t.TempDir(), "new")
	for _, tt := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"stdout", []string{good}, 0, `template "out" {`, ""},
		{"check", []string{good, "--check"}, 0, `template "out" {`, "stdout: valid"},
		{"named", []string{lossy}, exitFailed, "# Written", lossy + ":1: pid_file: no equivalent: "},
		{"syntax", []string{bad}, exitUsage, "", bad + ":2: "},
		{"invalid result", []string{invalid, "--check"}, exitUsage, "/tmp/", "stdout:"},
		{"no path", nil, exitUsage, "", "missing argument PATH"},
		{"unknown flag", []string{"--", "-nope"}, exitUsage, "", "-nope"},
		{"flags only", []string{"--", "-template", good + ":/tmp/out"}, 0, good, ""},
		{"directory", []string{good, "--out", out}, 0, "", "next: 'jorc render --diff --config " + out},
		{"not replaced", []string{good, "--out", out}, exitFailed, "", "is not replaced"},
	} {
		got := jorc(t, nil, append([]string{"migrate", "consul-template"}, tt.args...)...)
		if got.code != tt.code || !strings.Contains(got.stdout, tt.stdout) || (tt.stdout == "") != (got.stdout == "") || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%s: got %+v, want exit %d, stdout with %q, stderr with %q", tt.name, got, tt.code, tt.stdout, tt.stderr)
		}
	}
}
