// Package configtest makes small configurations for tests: each setting with a value, and what
// it needs around it.
package configtest

import (
	"fmt"
	"slices"
	"strings"

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
	"workflow.allow_params": "task \"t\" {\n  script = \"x\"\n}", "workflow.reboots": "task \"t\" {\n  script = \"x\"\n}", "workflow.disturbs": "task \"t\" {\n  script = \"x\"\n}",
	"template.max_parallel": `slot = "s"`, "process.max_parallel": `slot = "s"`,
	"control.group":      `socket = "/run/jorc/control.sock"`,
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

// Written returns a configuration in which a setting has a value; without one it
// has only what the block needs.
func Written(b config.Block, s config.Setting, value string) string {
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
