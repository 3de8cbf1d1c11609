package main

import (
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// hostile clears a terminal, sets its title, and hides what follows, in C0, C1
// and raw bytes. hostileText is the same without the bytes that JSON cannot hold.
const (
	hostileText = "x\x1b[2J\x1b]0;owned\x07\r\b\u009b31m\x7f\t\u202ey"
	hostile     = hostileText + "\x9b1m"
)

// plant puts hostile names, outputs, reasons and values wherever others may write.
func plant(t *testing.T, s *consultest.Server, env map[string]string) {
	t.Helper()
	client := s.Client()
	for _, node := range []string{"n1", "evil" + hostileText} {
		// Consul may refuse a name; then it cannot be planted.
		err := client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1", NodeMeta: map[string]string{"k": hostileText},
			Service: &consul.AgentService{ID: "web" + hostileText, Service: "web", Port: 80, Tags: []string{"t" + hostileText}, Meta: map[string]string{"k": hostileText}},
			Checks: consul.HealthChecks{
				{Node: node, CheckID: "c", Name: "check " + hostileText, Status: "critical", Output: hostileText, ServiceID: "web" + hostileText},
				{Node: node, CheckID: "n", Name: "check " + hostileText, Status: "critical", Output: hostileText},
			},
		})
		if err != nil && node == "n1" {
			t.Fatal(err)
		}
		t.Logf("node %q: %v", node, err)
	}
	err := client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
		Node: "n1", Address: "10.0.0.1", Service: &consul.AgentService{ID: "odd", Service: "odd" + hostileText, Port: 80},
	})
	t.Logf("a service with such a name: %v", err)
	for _, args := range [][]string{
		{"cluster", "init", "default"},
		{"cluster", "profile", "set", "plain", hostileText},
		{"cluster", "profile", "set", "list", `["\u001b[2J", "\u009b31m"]`},
		{"cluster", "meta", "set", "m", hostileText},
		{"cluster", "join", "--node", "n1", "--role", "web", "--param", "p=" + hostileText},
		{"cluster", "hold", "--reason", "because " + hostileText},
		{"cluster", "pause", "--reason", "because " + hostileText},
		{"status", "set", "config", "failed", "--host", "n1", "--detail", "because " + hostileText},
		{"update", "report", "--host", "n1", "--version", "v1" + hostileText},
		{"update", "report", "--host", "n1", "--version", "v1"},
		{"update", "trigger", "v2" + hostileText},
		{"update", "trigger", "v2"},
	} {
		if got := jorc(t, env, args...); got.code != exitOK {
			t.Logf("%q: exit %d: %s", args, got.code, got.stderr)
		} else if bad := unsafeText(got.stdout + got.stderr); bad != "" {
			t.Errorf("%q printed %q", args, bad)
		}
	}
	for _, key := range []string{
		"nodes/n1", "nodes/evil" + hostileText, "members/m" + hostileText, "host/h" + hostileText + "/hold", "current_version", "current/version", "leaders", "slots/group/s" + hostileText, "slots/group/s", "slots/claim/n1/s/" + hostileText,
		"runs/r" + hostileText + "/run", "runs/r/run", "events/1", "view/x", "history/rollouts/h", "status/config/failed/n" + hostileText, "running_version/v" + hostileText + "/n1", "profile/x" + hostileText,
	} {
		for _, value := range []string{hostile, `{"format":1,"version":"` + hostile + `"}`} {
			if strings.HasPrefix(key, "current") && strings.HasPrefix(value, "{") {
				continue
			}
			if err := client.KVPut(t.Context(), &consul.KVPair{Key: "jorc/damaged/" + key, Value: []byte(value)}); err != nil && !strings.Contains(key, hostileText) {
				t.Fatal(err) // a key that Consul refuses cannot be planted
			}
		}
	}
}

// TestHostileText: whatever names, values, outputs and reasons hold, no command
// prints a byte that steers a terminal, in no format and no error.
func TestHostileText(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	env := onServer(t, s)
	plant(t, s, env)
	reads := [][]string{
		{"service", "list"},
		{"service", "list", "--node", "n1"},
		{"service", "resolve", "web"},
		{"service", "resolve", "nope" + hostile},
		{"service", "deregister", "nope" + hostile},
		{"cluster", "list"},
		{"cluster", "show"},
		{"cluster", "members"},
		{"cluster", "members", "--filter", "Node == " + hostile},
		{"cluster", "leader"},
		{"cluster", "view"},
		{"cluster", "report"},
		{"cluster", "profile", "show"},
		{"cluster", "profile", "get", "plain"},
		{"cluster", "profile", "get", "list"},
		{"cluster", "profile", "get", "none" + hostile},
		{"cluster", "profile", "get", "p", "--node", "n1"},
		{"cluster", "profile", "set", "plain", "1", "--ref", "2" + hostileText},
		{"cluster", "meta", "get"},
		{"cluster", "meta", "get", "m"},
		{"cluster", "export"},
		{"cluster", "runs"},
		{"cluster", "runs", "r"},
		{"cluster", "runs", "r" + hostile},
		{"cluster", "logs", "r"},
		{"cluster", "events"},
		{"cluster", "events", "--kind", hostile},
		{"cluster", "slots"},
		{"cluster", "slots", "s"},
		{"cluster", "deps"},
		{"cluster", "deps", "--format", "dot"},
		{"cluster", "wait", "--timeout", "1s"},
		{"cluster", "orchestrate", "--timeout", "1s"},
		{"status", "list"},
		{"status", "list", "n1"},
		{"status", "failures"},
		{"status", "failures", "--hosts", "--warnings"},
		{"status", "unaccounted"},
		{"status", "set", hostile, hostile},
		{"update", "current"},
		{"update", "running"},
		{"update", "hosts", "v1"},
		{"update", "hosts", hostile},
		{"update", "show"},
		{"update", "why"},
		{"update", "why", "n1"},
		{"update", "history"},
		{"update", "verify", "v1", "n1"},
		{"update", "verify", "v2", hostile},
		{"update", "single", "v1"},
		{"update", "pending"},
		{"update", "wait", "--timeout", "1s"},
		{"health"},
		{"ping"},
		{"doctor"},
		{"wait", "web", "--timeout", "1s"},
		{"wait", hostile, "--timeout", "1s"},
		{"workflow", "list"},
		{"workflow", "logs"},
		{"workflow", "run", hostile},
		{hostile},
		{"cluster", hostile},
		{"--" + hostile},
		{"config", "validate", "/none/" + hostile},
		{"running_versions"},
		{"current_version"},
		{"get_failures", "--hosts"},
		{"hosts_at_version", "v1"},
	}
	for _, cluster := range []string{"default", "damaged"} {
		env["JORC_CLUSTER"] = cluster
		for _, format := range []string{formatTable, formatPlain, formatJSON} {
			env["JORC_OUTPUT"] = format
			for _, args := range reads {
				got := jorc(t, env, args...)
				stdout := got.stdout
				if format != formatJSON {
					stdout = strings.ReplaceAll(stdout, "\t", "") // between jorc's own cells; those of a cell are escaped
				}
				for where, text := range map[string]string{"stdout": stdout, "stderr": got.stderr} {
					if bad := unsafeText(text); bad != "" {
						t.Errorf("%s, %s: %q prints %q to %s:\n%q", cluster, format, args, bad, where, text)
					}
				}
			}
		}
	}
}

// TestRawData: what is promised byte for byte goes unchanged into files and pipes,
// and safely to a terminal.
func TestRawData(t *testing.T) {
	t.Parallel()
	_, env := onShared(t)
	do := doer(t, env)
	do(result{0, "", ""}, "init", "default")
	do(result{0, "", ""}, "profile", "set", "pem", "--string", hostileText)
	do(result{0, hostileText, ""}, "profile", "get", "pem", "--raw")
	if got := jorc(t, env, "cluster", "profile", "get", "pem"); unsafeText(got.stdout) != "" {
		t.Errorf("the JSON is %q", got.stdout)
	}
	ours, theirs := pseudoTerminal(t)
	cmd := below(t, env, func(c *exec.Cmd) {
		c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, "profile", "get", "pem", "--raw")
	_ = theirs.Close() // the process has its own
	var screen output
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(&screen, ours) // ends with the last process on the terminal
	}()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	<-shown
	if got := strings.ReplaceAll(screen.String(), "\r\n", "\n"); unsafeText(got) != "" || !strings.Contains(got, `x\u001b[2J`) || !strings.HasSuffix(got, "\n") {
		t.Errorf("a terminal got %q", got)
	}
}

// TestLogsOfTasks: a task's output reaches stdout and stderr without escapes, live
// and from its log.
func TestLogsOfTasks(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), `
workflow "w" {
  task "t" {
    command = ["printf", "a\\033[2J\\tb\\r\\nc\\233d\\n"]
  }
}
`)
	run := m.run("workflow", "run", "w", "--alone", "--id", "j", "--config", m.path("jorc.hcl"))
	logs := m.run("workflow", "logs", "j")
	want := `a\u001b[2J      b` + "\n" + `c\x9bd` + "\n"
	if run.code != exitOK || logs.code != exitOK || !strings.Contains(logs.stdout, want) {
		t.Errorf("got %+v and %+v, want %q in the log", run, logs, want)
	}
	for _, r := range []result{run, logs} {
		if bad := unsafeText(strings.ReplaceAll(r.stdout, "\t", "") + r.stderr); bad != "" {
			t.Errorf("%q is printed in %+v", bad, r)
		}
	}
}
