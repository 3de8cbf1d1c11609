package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/workflow"
)

const workflows = `
workflow "greet" {
  task "hello" {
    script = <<-EOT
      #!/bin/sh
      echo hello {{quote (.Param "who")}} of {{.Node}}
    EOT
  }
}
workflow "breaks" {
  task "fine" {
    command = ["true"]
  }
  task "breaks" {
    command     = ["sh", "-c", "echo broken >&2; exit 3"]
    retries     = 1
    retry_delay = "1ms"
  }
}
workflow "waits" {
  task "db" {
    command = ["true"]
    requires "mysql" {}
  }
}
workflow "stops" {
  task "enough" {
    command = ["sh", "-c", "exit 195"]
  }
}
workflow "reboots" {
  reboots = true
  task "kernel" {
    command = ["sh", "-c", "exit 194"]
  }
}
workflow "limits" {
  task "default" { command = ["true"] }
  task "lifted" {
    command = ["true"]
    timeout = 0
  }
  task "set" {
    command = ["true"]
    timeout = "5m"
  }
}
workflow "versioned" {
  task "v" {
    command = ["echo", "at {{.Version}}"]
  }
}
`

// alone is a host without Consul: the environment and the configuration.
func alone(t *testing.T) (env map[string]string, config string) {
	t.Helper()
	return map[string]string{
		"JORC_STATE_DIR": t.TempDir(), "CONSUL_HTTP_ADDR": "127.0.0.1:1", "JORC_DNS_ADDR": "127.0.0.1:1", "JORC_NODE": "n1",
	}, writeFile(t, "workflows.hcl", workflows)
}

func TestWorkflowRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   string
		code   int
		stdout string
		stderr []string
	}{
		{"greet --param who=you", exitOK, "hello\tsuccess\t1\t0\t", []string{"jorc: task hello: running: attempt 1\n", "hello you of n1\n", "jorc: task hello: success\n"}},
		{"greet --param who=[1,\"a'b\"] -q", exitOK, "hello\tsuccess\t1\t0\t", nil},
		{"greet --param who={ --string", exitOK, "hello\tsuccess\t1\t0\t", []string{"hello { of n1\n"}},
		{
			"breaks", exitFailed, "fine\tsuccess\t1\t0\t|breaks\tfailed\t2\t3\t",
			[]string{`workflow "breaks": failed: task "breaks": exit code 3: broken (attempt 2); see 'jorc workflow logs`},
		},
		{"waits --timeout 1ns", exitTimeout, "db\tpending\t0\t\t", []string{"pending: task \"db\": waiting for mysql: 0 of 1 functional (", "continue with 'jorc workflow run waits --id "}},
		{"stops", exitStopped, "enough\tsuccess\t1\t195\t", []string{`stopped: task "enough": the task requested to stop here; see`}},
		{"reboots", exitStopped, "kernel\tsuccess\t1\t194\t", []string{`reboot: task "kernel": a reboot is needed; reboot, then continue with`}},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			env, config := alone(t)
			got := jorc(t, env, append([]string{"workflow", "run", "--config", config, "-o", "plain"}, strings.Fields(test.args)...)...)
			if got.code != test.code {
				t.Errorf("got %+v, want exit %d", got, test.code)
			}
			lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
			for i, want := range strings.Split(test.stdout, "|") {
				if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
					t.Errorf("stdout: got %q, want a line that begins with %q", got.stdout, want)
				}
			}
			for _, want := range test.stderr {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("stderr: got %s, want %q in it", got.stderr, want)
				}
			}
			if test.stderr == nil && got.stderr != "" {
				t.Errorf("stderr: got %s, want nothing", got.stderr)
			}
		})
	}
}

// TestWorkflowUsage: what is wrong is said in one line, and nothing is run.
func TestWorkflowUsage(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	for _, test := range []struct{ args, want string }{
		{"run", "missing argument NAME"},
		{"run greet --alone", `there is no param "who"`},
		{"run greet --param who", "write NAME=VALUE"},
		{"run greet --param who={\"a\":1,\"a\":2}", `param "who": `},
		{"run greet --param a=1 --param a=2", `param "a" is given twice`},
		{"run greet --param who=x --id a/b", "'/' at position 2"},
		{"run greet --param who=x -o xml", "--output is"},
		{"run versioned", "no version yet"},
		{"logs a b", "too many arguments"},
		{"logs a/b", "'/' at position 2"},
		{"list x", "no arguments expected"},
		{"jobs x", "no arguments expected"},
	} {
		line := strings.Fields(test.args)
		got := jorc(t, env, append([]string{"workflow", line[0], "--config", config}, line[1:]...)...)
		if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, test.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: got %+v, want exit 2 with %q", test.args, got, test.want)
		}
	}
	unknown := `workflow "nope": no such workflow on this node; workflows: breaks, greet,`
	if got := jorc(t, env, "workflow", "run", "nope", "--config", config); got.code != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, unknown) {
		t.Errorf("run nope: got %+v, want exit 1 with %q", got, unknown)
	}
	if got := jorc(t, env, "workflow", "jobs", "--config", config, "-o", "json"); got.stdout != "[]\n" {
		t.Errorf("jobs: got %+v, want none", got)
	}
}

// TestWorkflowUnreachable: a param that cannot be read is not a mistake of the
// caller, and nothing is run.
func TestWorkflowUnreachable(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	got := jorc(t, env, "workflow", "run", "greet", "--config", config)
	if got.code != exitUnreachable || got.stdout != "" || !strings.Contains(got.stderr, `param "who": the job has none, and those of this member cannot be read: `) {
		t.Errorf("got %+v, want exit 3", got)
	}
}

func TestWorkflowBusy(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	dir := filepath.Join(env["JORC_STATE_DIR"], "jobs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := durable.TryLock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	got := jorc(t, env, "workflow", "run", "stops", "--config", config)
	if got.code != exitConflict || !strings.HasPrefix(got.stderr, "jorc: another workflow runs on this host: ") || !strings.Contains(got.stderr, "held by pid ") {
		t.Errorf("got %+v, want exit 4", got)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := jorc(t, env, "workflow", "run", "stops", "--config", config); got.code != exitStopped {
		t.Errorf("got %+v, want exit 6", got)
	}
}

// TestWorkflowVersion: .Version is what the version file says, if that is a version.
func TestWorkflowVersion(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	file := filepath.Join(env["JORC_STATE_DIR"], "version")
	for text, want := range map[string]string{"v1.2\n": "at v1.2\n", "rub\x00bish": "", "a b": "", strings.Repeat("x", 200): ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := jorc(t, env, "workflow", "run", "versioned", "--config", config)
		if want != "" && (got.code != exitOK || !strings.Contains(got.stderr, want)) {
			t.Errorf("%q: got %+v, want %q", text, got, want)
		}
		if want == "" && (got.code != exitUsage || !strings.Contains(got.stderr, "; continuing without a version\n") || !strings.Contains(got.stderr, "not a version file")) {
			t.Errorf("%q: got %+v, want it told", text, got)
		}
	}
}

// TestWorkflowJobs: list, jobs and logs tell what was run; the same id is one job.
func TestWorkflowJobs(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	do := func(args ...string) result {
		t.Helper()
		return jorc(t, env, append(args, "--config", config)...)
	}
	if got := do("workflow", "logs"); got.code != exitFailed || !strings.Contains(got.stderr, "no jobs in ") {
		t.Errorf("got %+v", got)
	}
	for range 2 {
		got := do("workflow", "run", "greet", "--id", "g1", "--param", "who=you", "-q", "-o", "json")
		var res workflow.Result
		if err := json.Unmarshal([]byte(got.stdout), &res); err != nil || res.State != workflow.Success || res.Tasks[0].Attempts != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if got := do("workflow", "run", "stops", "--id", "g1"); got.code != exitUsage || !strings.Contains(got.stderr, `it is of workflow "greet"`) {
		t.Errorf("got %+v", got)
	}
	do("workflow", "run", "breaks", "--id", "b1")
	if got := do("workflow", "jobs", "-o", "plain"); got.stdout != "b1\tbreaks\t\tfailed\tbreaks\texit code 3: broken (attempt 2)\tjorc workflow run\ng1\tgreet\t\tsuccess\t\t\tjorc workflow run\n" {
		t.Errorf("jobs: got %+v", got)
	}
	got := do("workflow", "list", "-o", "plain")
	if !strings.Contains(got.stdout, "greet\t1\tg1\tsuccess\t") || !strings.Contains(got.stdout, "waits\t1\t\t\t\n") {
		t.Errorf("list: got %+v", got)
	}
	got = do("workflow", "list", "-o", "json")
	var listed []listedWorkflow
	if err := json.Unmarshal([]byte(got.stdout), &listed); err != nil || len(listed) != 7 || listed[1].Last.ID != "b1" || listed[2].Last != nil {
		t.Errorf("list: got %+v, %v", got, err)
	}
	for args, want := range map[string]result{
		"logs":                {0, "broken\nbroken\n", "jorc: job b1, workflow \"breaks\": failed: task \"breaks\": exit code 3: broken (attempt 2)\n"},
		"logs g1":             {0, "hello you of n1\n", "jorc: job g1, workflow \"greet\": success\n"},
		"logs b1 --task fine": {0, "", "jorc: job b1, workflow \"breaks\": failed: task \"breaks\": exit code 3: broken (attempt 2)\n"},
		"logs g1 --task nope": {1, "", "jorc: job g1, workflow \"greet\": success\njorc: job \"g1\": task \"nope\": no such task\n"},
		"logs nope":           {1, "", "jorc: job \"nope\": no such job; jobs: b1, g1\n"},
	} {
		if got := do(append([]string{"workflow"}, strings.Fields(args)...)...); got != want {
			t.Errorf("%s: got %+v, want %+v", args, got, want)
		}
	}
	if got := do("workflow", "logs", "b1", "-o", "json"); !strings.Contains(got.stdout, `"suspect": [`) || got.stderr != "" {
		t.Errorf("logs -o json: got %+v", got)
	}
}

// TestWorkflowTimeout: a task ends after two hours if its configuration does not say
// otherwise.
func TestWorkflowTimeout(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	if got := jorc(t, env, "workflow", "run", "limits", "--id", "l", "--config", config); got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	data, err := os.ReadFile(filepath.Join(env["JORC_STATE_DIR"], "jobs", "l", "spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Tasks []struct{ Timeout time.Duration }
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(spec.Tasks), "[{2h0m0s} {0s} {5m0s}]"; got != want {
		t.Errorf("got timeouts %s, want %s", got, want)
	}
}

// TestWorkflowNode: the node of a job is the agent's, whatever the host is called.
func TestWorkflowNode(t *testing.T) {
	t.Parallel()
	env, config := alone(t)
	do := func(want string) {
		t.Helper()
		if got := jorc(t, env, "workflow", "run", "greet", "--alone", "--param", "who=you", "--config", config); !strings.Contains(got.stderr, "hello you of "+want+"\n") {
			t.Errorf("got %+v, want node %q", got, want)
		}
	}
	do("n1") // JORC_NODE
	delete(env, "JORC_NODE")
	if err := os.WriteFile(filepath.Join(env["JORC_STATE_DIR"], "node"), []byte("n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	do("n2") // what the agent has written
	if err := os.Remove(filepath.Join(env["JORC_STATE_DIR"], "node")); err != nil {
		t.Fatal(err)
	}
	s := consultest.Start(t)
	env["CONSUL_HTTP_ADDR"] = s.HTTPAddr
	do(s.Node) // as an agent would have it
}

// TestWorkflowDefaultTimeout: a task ends after two hours, unless its configuration
// says another time or, by 0, none.
func TestWorkflowDefaultTimeout(t *testing.T) {
	t.Parallel()
	env, _ := alone(t)
	config := writeFile(t, "w.hcl", `
workflow "w" {
  task "default" { script = "true" }
  task "none" {
    script  = "true"
    timeout = "0"
  }
  task "own" {
    script  = "true"
    timeout = "5m"
  }
}
`)
	if got := jorc(t, env, "workflow", "run", "w", "--alone", "--id", "j", "--config", config); got.code != exitOK {
		t.Fatalf("run: %+v", got)
	}
	data, err := os.ReadFile(filepath.Join(env["JORC_STATE_DIR"], "jobs", "j", "spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Tasks []struct{ Timeout time.Duration }
	}
	if err := json.Unmarshal(data, &job); err != nil || len(job.Tasks) != 3 {
		t.Fatalf("the job is %s, %v", data, err)
	}
	for i, want := range []time.Duration{2 * time.Hour, 0, 5 * time.Minute} {
		if got := job.Tasks[i].Timeout; got != want {
			t.Errorf("timeout of task %d: got %v, want %v", i, got, want)
		}
	}
}
