package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

// program is a script that writes to the file "said" that it started, with the file
// "t" and the variable NAME, and which signals it got.
const program = `#!/bin/sh
cd DIR
mkdir alive || echo twice >> said
trap 'echo term >> said; rmdir alive; exit 0' TERM
trap 'echo int >> said; rmdir alive; exit 0' INT
trap 'echo hup $(cat t) >> said' HUP
setsid sleep 1000 & helper=$!
echo start $(cat t) $NAME >> said
echo $helper > helper
while :; do wait; done
`

// withProgram is a machine with the program.
func withProgram(t *testing.T, s *consultest.Server, conf string) *machine {
	t.Helper()
	m := newMachine(t, s, "http { addr = \"127.0.0.1:0\" }\ntemplate \"t\" {\n  contents    = \"{{ key \\\"k\\\" }}\"\n  destination = \"DIR/t\"\n}\n"+conf)
	m.write("program", strings.ReplaceAll(program, "DIR", m.dir))
	return m
}

// wantLines waits until a file of the machine has these lines.
func (m *machine) wantLines(name string, lines ...string) {
	m.t.Helper()
	m.wantFile(name, strings.Join(lines, "\n")+"\n")
}

// wantProcess waits for the state of the machine's only process.
func (d *process) wantProcess(what string, ok func(web.Process) bool) {
	d.m.t.Helper()
	d.m.eventually(what, func() error {
		if s := d.status(); len(s.Processes) != 1 || !ok(s.Processes[0]) {
			return fmt.Errorf("got %+v", s.Processes)
		}
		return nil
	})
}

// TestProcess: a process starts when its templates are rendered and its environment is
// known, restarts when one of them changes, and ends with the agent. The values of
// its environment are nowhere to be seen.
func TestProcess(t *testing.T) {
	t.Parallel()
	m := withProgram(t, consultest.Start(t), `
process "app" {
  command          = ["/bin/sh", "DIR/program"]
  min_healthy_time = "100ms"
  env {
    prefix "app/config" { }
    upcase = true
  }
}
`)
	m.put("app/config/name", "s3cret-1")
	m.put("app/configuration/name", "other")
	d := m.agent("--log-level", "trace")
	d.wantProcess("what it waits for", func(p web.Process) bool {
		return p.State == "waiting" && slices.Equal(p.Waiting, []string{`template "t"`}) && p.Starts == 0
	})
	if got := d.get("/healthz?ready"); !strings.Contains(got, `process "app" is waiting: template "t"`) {
		t.Errorf("readiness: got %q", got)
	}
	m.put("k", "one")
	m.wantLines("said", "start one s3cret-1")
	m.eventually("readiness", func() error { return lacks(d.get("/healthz?ready"), "ok\n") })
	pages := d.get("/") + d.get("/v1/status") + d.get("/metrics")

	m.put("k", "two")
	m.wantLines("said", "start one s3cret-1", "term", "start two s3cret-1")
	m.put("app/config/name", "s3cret-2")
	m.wantLines("said", "start one s3cret-1", "term", "start two s3cret-1", "term", "start two s3cret-2")
	d.wantProcess("three starts", func(p web.Process) bool { return p.Starts == 3 && p.State == "running" && p.PID > 0 })
	pages += d.get("/") + d.get("/v1/status") + d.get("/metrics")
	helper := strings.TrimSpace(m.read("helper"))
	d.signal(syscall.SIGTERM)
	d.wantExit(0)
	m.wantLines("said", "start one s3cret-1", "term", "start two s3cret-1", "term", "start two s3cret-2", "term")
	if text, err := os.ReadFile("/proc/" + helper + "/stat"); err == nil {
		t.Errorf("the process's child %s was neither ended nor reaped: %s", helper, text)
	}
	if strings.Contains(pages+d.said.String(), "s3cret") || !strings.Contains(pages, `"app"`) {
		t.Error("the status or the log contains a value of the environment, or no process")
	}
}

// TestProcessSignals: with reload_signal changed files do not restart a process. A
// changed block restarts it at a reload, an unchanged one does not, and without its
// block it ends. So it is with an agent that was started with these signals ignored, as
// nohup does.
func TestProcessSignals(t *testing.T) {
	t.Parallel()
	conf := func(setting string) string {
		return "process \"app\" {\n  command = [\"/bin/sh\", \"DIR/program\"]\n  templates = [\"t\"]\n  reload_signal = \"SIGHUP\"\n  " + setting + "\n}\n"
	}
	m := withProgram(t, consultest.Start(t), conf(`kill_signal = "SIGINT"`))
	m.wrap = []string{"sh", "-c", `trap "" HUP INT; exec "$0" "$@"`}
	first := m.read("jorc.hcl")
	m.put("k", "one")
	d := m.agent()
	m.wantLines("said", "start one")
	m.put("k", "two")
	m.wantLines("said", "start one", "hup two")
	m.write("jorc.hcl", first+"log_level = \"debug\"\n")
	d.signal(syscall.SIGHUP)
	d.wantSaid("configuration reloaded")
	m.put("k", "three")
	m.wantLines("said", "start one", "hup two", "hup three")
	m.write("jorc.hcl", strings.Replace(first, `kill_signal = "SIGINT"`, "env { custom = [\"NAME=x\"] }", 1))
	d.signal(syscall.SIGHUP)
	m.wantLines("said", "start one", "hup two", "hup three", "int", "start three x")
	before, _, _ := strings.Cut(first, "process")
	m.write("jorc.hcl", before)
	d.signal(syscall.SIGHUP)
	m.wantLines("said", "start one", "hup two", "hup three", "int", "start three x", "term")
	if s := d.status(); len(s.Processes) != 0 {
		t.Errorf("got %+v, want no process", s.Processes)
	}
}

// TestProcessKilledAgent: after kill -9 of the agent the process ends as its block
// says, and the next agent starts it only then.
func TestProcessKilledAgent(t *testing.T) {
	t.Parallel()
	m := withProgram(t, consultest.Start(t), `process "app" { command = ["/bin/sh", "DIR/program"] }`)
	slow := strings.ReplaceAll(program, "'echo term >> said;", "'echo term >> said; sleep 1;")
	m.write("program", strings.ReplaceAll(slow, "DIR", m.dir))
	m.put("k", "one")
	want := []string{"start one"}
	for range 2 {
		d := m.agent()
		m.wantLines("said", want...)
		d.signal(syscall.SIGKILL)
		m.eventually("the end of the agent", func() error {
			if err := d.cmd.Process.Signal(syscall.Signal(0)); err == nil {
				return errors.New("it runs")
			}
			return nil
		})
		want = append(want, "term", "start one")
	}
	m.agent()
	m.wantLines("said", want...)
}

// TestProcessFails: a process that ends is started again, and the status says how it
// ended.
func TestProcessFails(t *testing.T) {
	t.Parallel()
	m := withProgram(t, consultest.Start(t), `process "app" { command = ["/bin/sh", "-c", "exit $(cat DIR/t)"] }`)
	m.put("k", "3")
	d := m.agent()
	d.wantProcess("a failure", func(p web.Process) bool {
		return p.State == "failed" && p.Starts > 1 && strings.Contains(p.Error, "exit code 3") && !p.Next.IsZero()
	})
	m.eventually("readiness", func() error {
		return lacks(d.get("/healthz?ready"), `process "app" `)
	})
	d.wantSaid("a process failed; it is started again: process=app")
	m.configure(strings.Replace(m.read("jorc.hcl"), `["/bin/sh"`, `["DIR/absent"`, 1))
	d.signal(syscall.SIGHUP)
	d.wantProcess("a missing program", func(p web.Process) bool {
		return p.State == "failed" && strings.Contains(p.Error, "absent: command not found")
	})
}

// TestProcessOnce: agent --once ends with the code of the process, which gets the
// environment that its block describes.
func TestProcessOnce(t *testing.T) {
	t.Parallel()
	address := vaultSecret(t)
	m := withProgram(t, consultest.Start(t), `
vault {
  address    = "`+address+`"
  token_file = "DIR/token"
}
process "app" {
  command = ["/bin/sh", "-c", "env | sort; cat DIR/t >&2; exit 7"]
  env {
    allowlist = ["PATH", "KEEP_*"]
    denylist  = ["KEEP_NOT"]
    custom    = ["own=1", "shared=custom"]
    sanitize  = true
    prefix "app" { format = "app_{{ key }}" }
    prefix "more" { }
    secret "secret/data/db" { }
  }
}
`)
	m.write("token", "root")
	for key, value := range map[string]string{"k": "rendered", "app/a-b": "1", "app/dir/c": "two words\n", "app/empty": "", "more/shared": "kv", "more/password": "kv"} {
		m.put(key, value)
	}
	m.env = append(m.env, "KEEP_THIS=yes", "KEEP_NOT=no", "CONSUL_HTTP_TOKEN=", "VAULT_TOKEN_FILE=hidden")
	got := m.run("agent", "--once", "--config", m.path("jorc.hcl"))
	want := "KEEP_THIS=yes\nPATH=" + os.Getenv("PATH") + "\nPWD=" + m.dir + "\napp_a_b=1\napp_dir_c=two words\n\napp_empty=\nown=1\npassword=hunter2\nport=5432\nshared=custom\n"
	if lines := sortedLines(got.stdout); got.code != 7 || lines != sortedLines(want) || !strings.Contains(got.stderr, "rendered") {
		t.Errorf("got exit %d, %q, want 7, %q; stderr:\n%s", got.code, lines, sortedLines(want), got.stderr)
	}
	m.configure(strings.Replace(m.read("jorc.hcl"), "exit 7", "exit 0", 1))
	if got := m.run("agent", "--once", "--config", m.path("jorc.hcl")); got.code != 0 {
		t.Errorf("got %+v, want exit 0", got)
	}
	m.put("more/LD_PRELOAD", "/evil.so")
	got = m.run("agent", "--once", "--once-timeout", "2s", "--config", m.path("jorc.hcl"))
	if got.code != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, "LD_PRELOAD can be set in env { custom } only") || strings.Contains(got.stderr, "evil") {
		t.Errorf("a reserved variable: got %+v", got)
	}
}

func sortedLines(text string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "_=") || strings.HasPrefix(line, "OLDPWD=") || strings.HasPrefix(line, "SHLVL=")
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// vaultSecret answers as version 2 of Vault's key-value store does.
func vaultSecret(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != "root" || r.URL.Path != "/v1/secret/data/db" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		data := map[string]any{"data": map[string]any{"password": "hunter2", "port": 5432}, "metadata": map[string]any{"version": 1}}
		if err := json.NewEncoder(w).Encode(map[string]any{"data": data, "lease_duration": 3600}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestProcessSlot: of two hosts one restarts its process at a time, and keeps the slot
// while the process does not stay up.
func TestProcessSlot(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	conf := func(node string) string {
		return "node = \"" + node + "\"\n" + `process "app" {
  command          = ["/bin/sh", "-c", "cp DIR/t DIR/run; cat DIR/run >> DIR/said; exec sh DIR/run"] # t may change meanwhile
  min_healthy_time = "15s" # longer than a program takes to end on a busy machine
  slot             = "app"
  max_parallel     = 1
}
`
	}
	one, two := withProgram(t, s, conf("one")), withProgram(t, s, conf("two"))
	const good, bad = "exec sleep 1000 #1\n", "exit 3\n"
	one.put("k", good)
	agents := []*process{one.agent(), two.agent()}
	for _, m := range []*machine{one, two} {
		m.wantFile("said", good)
	}
	one.put("k", bad)
	failing := func(p web.Process) bool { return strings.Contains(p.Error, "exit code 3") }
	one.eventually("one host fails, the other waits", func() error {
		a, b := agents[0].status().Processes[0], agents[1].status().Processes[0]
		if failing(b) {
			a, b = b, a
		}
		if !failing(a) || a.Starts < 3 || failing(b) || b.PID == 0 || b.Pending != `a slot of "app"` {
			return fmt.Errorf("got %+v and %+v", a, b)
		}
		return nil
	})
	const better = "exec sleep 1000 #2\n"
	one.put("k", better)
	for _, m := range []*machine{one, two} {
		m.eventually("the better content", func() error {
			if said := m.read("said"); !strings.HasSuffix(said, better) {
				return fmt.Errorf("got %q", said)
			}
			return nil
		})
	}
}

// TestProcessEvents: a process that fails is a failure of its host and an event of the
// cluster, and so is its recovery. A process that never failed is neither.
func TestProcessEvents(t *testing.T) {
	t.Parallel()
	m := withProgram(t, consultest.Start(t), `
node = "one"
member { }
orchestrator { interval = "1s" }
process "good" {
  command          = ["/bin/sh", "-c", "exec sleep 1000"]
  min_healthy_time = "2s"
}
process "app" {
  command          = ["/bin/sh", "DIR/t"]
  min_healthy_time = "2s"
}
`)
	m.put("k", "exec sleep 1000")
	if got := m.run("cluster", "init", "default"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	d := m.agent()
	m.eventually("readiness", func() error { return lacks(d.get("/healthz?ready"), "ok\n") })
	events := func() string { return m.run("cluster", "events", "-o", "json").stdout }
	m.eventually("the member's event", func() error { return lacks(events(), "is a member") })
	if got := events(); strings.Contains(got, "processes") {
		t.Errorf("before a failure: got events\n%s", got)
	}
	m.put("k", "exit 3")
	m.eventually("the event of the failure", func() error { return lacks(events(), "processes") })
	m.eventually("the failure", func() error {
		return lacks(m.run("status", "failures").stdout, "app: it ended with exit code 3")
	})
	m.put("k", "exec sleep 2000")
	m.eventually("no failure", func() error {
		if got := m.run("status", "failures"); strings.Contains(got.stdout, "exit code 3") {
			return errors.New(got.stdout)
		}
		return nil
	})
}
