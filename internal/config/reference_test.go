package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/config"
)

// minimal are the least arguments of blocks that need some.
var minimal = map[string][][2]string{
	"template": {{"contents", `""`}, {"destination", `"/run/x"`}},
	"static":   {{"workflow", `"w"`}},
	"task":     {{"command", `["true"]`}},
	"trigger":  {{"key", `"k"`}, {"workflow", `"w"`}},
	"process":  {{"command", `["/bin/true"]`}},
	"s3":       {{"endpoint", `"s3.example"`}, {"bucket", `"b"`}},
	"ui":       {{"address", `"127.0.0.1:8530"`}},
	"tls":      {{"cert_file", `"/c"`}, {"key_file", `"/k"`}},
	"check":    {{"http", `"http://127.0.0.1/"`}, {"interval", `"10s"`}},
}

// instead are arguments that take the place of others.
var instead = map[string][]string{
	"template.source": {"contents"}, "task.script": {"command"},
	"trigger.event": {"key"}, "trigger.prefix": {"key"}, "trigger.service": {"key"},
	"trigger.schedule": {"key"}, "trigger.zone": {"key"}, "trigger.splay": {"key"}, "trigger.missed": {"key"},
	"check.script": {"http"}, "check.tcp": {"http"}, "check.udp": {"http"}, "check.grpc": {"http"}, "check.h2ping": {"http"},
	"check.ttl": {"http", "interval"}, "check.alias_service": {"http", "interval"},
}

// beside are arguments that a setting needs beside it.
var beside = map[string]string{
	"workflow.allow_params": "task \"t\" {\n  script = \"x\"\n}", "workflow.disturbs": "task \"t\" {\n  script = \"x\"\n}",
	"template.max_parallel": `slot = "s"`, "process.max_parallel": `slot = "s"`,
	"consul.client_cert": `client_key = "/k"`, "consul.client_key": `client_cert = "/c"`,
	"stage.gate_samples": `gate = "slo"`, "stage.gate_interval": `gate = "slo"`, "stage.gate_timeout": `gate = "slo"`,
	"sink.secret_file": `url = "https://hooks.example/"`,
	"trigger.zone":     `schedule = "@daily"`, "trigger.splay": `schedule = "@daily"`, "trigger.missed": `schedule = "@daily"`,
	"check.failures_before_warning": "failures_before_critical = 5",
}

// around are the blocks that a block stands in, where it is not the top.
var around = map[string]string{
	"check": `service "x" { %s }`, "weights": `service "x" { %s }`, "task": `workflow "w" { %s }`,
	"ui": "orchestrator {}\n%s", "tls": "orchestrator {}\nui {\n address = \"127.0.0.1:8530\"\n %s }",
	"process": "template \"app.conf\" {\n contents = \"x\"\n destination = \"/d\"\n}\n%s",
	"env":     "process \"x\" {\n command = [\"x\"]\n %s }", "prefix": "process \"x\" {\n command = [\"x\"]\n env {\n %s }\n}",
	"secret": "process \"x\" {\n command = [\"x\"]\n env {\n %s }\n}",
	"stage":  "member {}\ntemplate \"x\" {\n contents = \"x\"\n destination = \"/d\"\n %s }",
	"s3":     `log_store { %s }`, "sink": `orchestrator { %s }`,
}

// written returns a configuration in which a setting has a value; without one it
// has only what the block needs.
func written(b config.Block, s config.Setting, value string) string {
	path := b.Path(s)
	var args []string
	for _, pair := range minimal[b.Name] {
		if pair[0] != s.Name && !slices.Contains(instead[path], pair[0]) {
			args = append(args, pair[0]+" = "+pair[1])
		}
	}
	if extra := beside[path]; extra != "" {
		args = append(args, extra)
	}
	if value != "" {
		args = append(args, s.Name+" = "+value)
	}
	text := strings.Join(args, "\n")
	if b.Name == "" {
		return text + "\n"
	}
	label := ""
	switch {
	case b.Name == "sink" && s.Name == "path":
		label = `"file"`
	case b.Name == "sink":
		label = `"webhook"`
	case b.Label != "":
		label = `"x"`
	}
	text = fmt.Sprintf("%s %s {\n%s\n}\n", b.Name, label, text)
	if outer := around[b.Name]; outer != "" {
		text = fmt.Sprintf(strings.ReplaceAll(outer, "{ %s }", "{\n%s}"), text)
	}
	return text + "\n"
}

func loadText(t *testing.T, dir, text string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(dir, "jorc.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load([]string{file}, config.Options{})
}

// TestReferenceIsComplete: every block and setting that Load accepts is described,
// with an example that Load accepts, and a default that changes nothing when it is
// written.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	for _, b := range config.Reference() {
		if b.Doc == "" {
			t.Errorf("block %q is not described", b.Name)
		}
		for _, s := range b.Settings {
			t.Run(b.Path(s), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				if s.Type == "" || s.Doc == "" || s.Since == "" {
					t.Fatalf("type %q, since %q, description %q", s.Type, s.Since, s.Doc)
				}
				switch {
				case s.Type == "refused":
					if _, err := loadText(t, dir, written(b, s, `"x"`)); err == nil {
						t.Error("the reference says that it is refused, and it is accepted")
					}
					return
				case s.Name == "addr":
					return // another name of address; TestShortAddress
				case s.Example == "":
					t.Fatal("has no example")
				}
				if _, err := loadText(t, dir, written(b, s, s.Example)); err != nil {
					t.Errorf("its example is refused: %v", err)
				}
				if !literal(s.Default) {
					return
				}
				with, err := loadText(t, dir, written(b, s, s.Default))
				if err != nil {
					t.Fatalf("its default is refused: %v", err)
				}
				without, err := loadText(t, dir, written(b, s, ""))
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains(appliedLater, b.Path(s)) {
					return
				}
				if with, without := effective(t, with), effective(t, without); with != without {
					t.Errorf("to write its default changes something:\n%s\n%s", with, without)
				}
			})
		}
	}
}

// literal reports whether a default is written as in a configuration, rather than
// described in words.
func literal(standard string) bool {
	return standard != "" && (strings.ContainsAny(standard[:1], `"[0123456789`) || standard == "true" || standard == "false") && !strings.Contains(standard, " for ")
}

// appliedLater are settings whose default another package applies.
var appliedLater = []string{"check.method", "check.status", "task.dir", "task.kill_grace", "task.retry_delay", "task.timeout", "template.left_delim", "template.right_delim"}

// effective is what a configuration means.
func effective(t *testing.T, c *config.Config) string {
	t.Helper()
	c.Warnings, c.DefaultVersionFile = nil, false
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestShortAddress: the older name "addr" means address, and both at once are an
// error.
func TestShortAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := loadText(t, dir, "http { address = \"127.0.0.1:1\" }\ndns { address = \"127.0.0.1:2\" }\n")
	if err != nil || c.HTTP.Addr != "127.0.0.1:1" || c.DNS.Addr != "127.0.0.1:2" {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := loadText(t, dir, "http {\n address = \"127.0.0.1:1\"\n addr = \"127.0.0.1:2\"\n}\n"); err == nil || !strings.Contains(err.Error(), "same setting") {
		t.Errorf("address and addr: got %v", err)
	}
	if _, err := loadText(t, dir, "dns { address = \"x:y:z\" }\n"); err == nil || !strings.Contains(err.Error(), "jorc.hcl:1") {
		t.Errorf("a wrong addr: got %v", err)
	}
}
