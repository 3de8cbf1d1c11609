package main

import (
	"os"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// TestAgentOnce: one pass and its exit codes.
func TestAgentOnce(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, oneOfEach)
	m.put("k", "1")
	once := func() result { return m.run("agent", "--once", "--once-timeout", "3s", "--config", m.path("jorc.hcl")) }
	if got := once(); got.code != exitOK || got.stdout != "" {
		t.Errorf("got %+v", got)
	}
	m.wantFile("t", "1")
	m.wantServices("jorc web")

	m.configure(strings.ReplaceAll(oneOfEach, `key \"k\"`, `fail \"no\"`))
	if got := once(); got.code != exitFailed || !strings.Contains(got.stderr, `jorc: template "t": `) {
		t.Errorf("a template that fails: got %+v", got)
	}
	m.configure(strings.ReplaceAll(oneOfEach, `\"k\"`, `\"absent\"`))
	if got := once(); got.code != exitTimeout || !strings.Contains(got.stderr, "absent") {
		t.Errorf("a key that is not there: got %+v", got)
	}
	m.wantFile("t", "1")
	s.Stop()
	if got := once(); got.code != exitUnreachable {
		t.Errorf("without Consul: got %+v", got)
	}
	m.wantFile("t", "1")
}

// TestAgentOnceWithoutFiles: a file or directory that is missing is the reason of
// the failure, with or without Consul.
func TestAgentOnceWithoutFiles(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	for _, address := range []string{s.HTTPAddr, "127.0.0.1:1"} {
		for _, tt := range []struct{ template, want string }{
			{`source = "DIR/absent.ctmpl"` + "\n" + `destination = "DIR/out"`, "absent.ctmpl: no such file"},
			{`contents = "x"` + "\n" + `destination = "DIR/no/out"`, "DIR/no"},
		} {
			m := newMachine(t, s, "http { address = \"127.0.0.1:0\" }\nservice \"web\" { port = 80 }\ntemplate \"t\" {\n"+tt.template+"\n}\n")
			m.env = append(m.env, "CONSUL_HTTP_ADDR="+address)
			got := m.run("agent", "--once", "--once-timeout", "2s", "--config", m.path("jorc.hcl"))
			want := strings.ReplaceAll(tt.want, "DIR", m.dir)
			last := got.stderr[strings.LastIndexByte(strings.TrimSuffix(got.stderr, "\n"), '\n')+1:]
			if got.code != exitFailed && got.code != exitUsage || !strings.Contains(last, want) || strings.Contains(last, "could not be reached") {
				t.Errorf("Consul at %s: got %+v, want exit 1 or 2 and %q", address, got, want)
			}
		}
	}
}

// TestAgentOnceConverges: what became of convergence, as exit code and as one
// line with the reason.
func TestAgentOnceConverges(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach)
	m.put("k", "1")
	once := func(code int, said string) {
		t.Helper()
		within := "20s" // most end by themselves
		if strings.Contains(said, "waiting for") || strings.Contains(said, "template") {
			within = "3s"
		}
		got := m.run("agent", "--once", "--once-timeout", within, "--log-level", "error", "--config", m.path("jorc.hcl"))
		last := got.stderr[strings.LastIndexByte(strings.TrimSuffix(got.stderr, "\n"), '\n')+1:]
		if got.code != code || got.stdout != "" || last != said {
			t.Errorf("got %+v, want code %d and as the last line %q", got, code, said)
		}
	}
	task := func(script string) string {
		return oneOfEach + `
reboot_command = ["false"]
static { workflow = "converge" }
workflow "converge" {
  reboots = true
  task "apply" { script = "` + script + `" }
}
`
	}
	m.configure(task("echo done"))
	once(exitOK, "") // nothing is desired
	if got := m.run("update", "trigger", "v1"); got.code != 0 {
		t.Fatalf("trigger: got %+v", got)
	}
	m.write("state/hold", "the moon")
	held := "held by the file " + m.path("state/hold") + ": the moon"
	once(exitStopped, "jorc: convergence is stopped: "+held+"\n")
	m.configure(strings.ReplaceAll(oneOfEach, "{{", "number {{"))
	once(exitStopped, "jorc: convergence is stopped: "+held+"\n")
	if err := os.Remove(m.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	m.configure(task("echo no more room; exit 3"))
	once(exitFailed, `jorc: did not converge: task "apply": exit code 3: no more room`+"\n")
	m.configure(task("exit 194"))
	once(exitTimeout, `jorc: not converged yet: waits for a reboot of this host: task "apply": a reboot is needed`+"\n")
	m.configure(`requires "mysql" {}` + task("echo done"))
	once(exitTimeout, `jorc: not converged yet: waits for a reboot of this host: task "apply": a reboot is needed`+"\n")
	if got := m.run("update", "trigger", "v2"); got.code != 0 {
		t.Fatalf("trigger: got %+v", got)
	}
	once(exitTimeout, "jorc: not converged yet: waiting for mysql: 0 of 1 functional\n")
	m.configure(task("echo done"))
	once(exitOK, "")
}

// TestAgentOnceHeld: a held host ends at once, whatever it has to converge.
func TestAgentOnceHeld(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach)
	m.put("k", "1")
	if got := m.run("update", "trigger", "v1"); got.code != 0 {
		t.Fatalf("trigger: got %+v", got)
	}
	if err := os.MkdirAll(m.path("state"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{
		"", `member { zone = "a" }`, "trigger \"t\" {\n  key = \"k\"\n  workflow = \"w\"\n}\nworkflow \"w\" {\n  task \"a\" { script = \"true\" }\n}",
	} {
		m.configure(oneOfEach + more)
		m.write("state/hold", "the moon")
		want := "jorc: convergence is stopped: held by the file " + m.path("state/hold") + ": the moon\n"
		// Without a limit: what does not end by itself is ended by the test's deadline.
		got := m.run("agent", "--once", "--once-timeout", "0", "--log-level", "error", "--config", m.path("jorc.hcl"))
		if got.code != exitStopped || got.stdout != "" || !strings.HasSuffix(got.stderr, want) {
			t.Errorf("%q: got %+v, want %q", more, got, want)
		}
		if err := os.Remove(m.path("state/hold")); err != nil {
			t.Fatal(err)
		}
		if got := m.run("agent", "--once", "--once-timeout", "0", "--log-level", "error", "--config", m.path("jorc.hcl")); got.code != exitOK {
			t.Errorf("%q, not held: got %+v", more, got)
		}
	}
}

// TestRenderCommand: outputs and exit codes, beside an agent and without one.
func TestRenderCommand(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach)
	m.put("k", "one\n")
	render := func(args ...string) result {
		t.Helper()
		got := m.run(append([]string{"render", "--log-level", "error", "--config", m.path("jorc.hcl")}, args...)...)
		if got.stderr != "" {
			t.Errorf("%q: stderr %q", args, got.stderr)
		}
		return got
	}
	want := func(got, want result) {
		t.Helper()
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	file := m.path("t")
	want(render("--dry-run"), result{0, file + "\n", ""})
	want(render("--diff"), result{exitFailed, "--- /dev/null\n+++ " + file + "\n@@ -0,0 +1 @@\n+one\n", ""})
	if _, err := os.Stat(file); err == nil {
		t.Error("a dry run has written")
	}
	want(render("--once"), result{})
	m.wantFile("t", "one\n")
	want(render("--diff"), result{})
	want(render("--dry-run"), result{})
	want(render(), result{})

	d := m.agent()
	d.wantNotified("READY=1")
	m.put("k", "two\n")
	m.wantFile("t", "two\n")
	want(render("--diff"), result{})
	m.configure(strings.ReplaceAll(oneOfEach, "{{", "number {{"))
	want(render("--dry-run"), result{0, file + "\n", ""})
	want(render("--diff"), result{exitFailed, "--- " + file + "\n+++ " + file + "\n@@ -1 +1 @@\n-two\n+number two\n", ""})
	m.wantFile("t", "two\n")

	m.configure(strings.ReplaceAll(oneOfEach, `\"k\"`, `\"absent\"`))
	got := m.run("render", "--diff", "--timeout", "2s", "--config", m.path("jorc.hcl"))
	if got.code != exitTimeout || got.stdout != "" || !strings.Contains(got.stderr, "absent") {
		t.Errorf("a key that is not there: got %+v", got)
	}
	for _, args := range [][]string{{"--diff", "--dry-run"}, {"--once", "--diff"}, {"x"}} {
		if got := m.run(append([]string{"render", "--config", m.path("jorc.hcl")}, args...)...); got.code != exitUsage {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if got := jorc(t, nil, "render"); got.code != exitUsage || !strings.Contains(got.stderr, "no configuration") {
		t.Errorf("no configuration: got %+v", got)
	}
}
