package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

const oneOfEach = `
http { address = "127.0.0.1:0" }
service "web" { port = 80 }
template "t" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/t"
}
`

// TestAgentUnderSystemd: ready without Consul, reloading, stopping, watchdog.
func TestAgentUnderSystemd(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	s.Stop()
	m := newMachine(t, s, oneOfEach)
	m.env = append(m.env, "WATCHDOG_USEC=100000")
	d := m.agent()
	d.wantNotified("READY=1\n")
	d.wantNotified("WATCHDOG=1\nWATCHDOG=1\n")
	d.wantNotified("STATUS=not ready; 2 services, 1 template; consul ")
	m.eventually("what is wrong", func() error {
		if s := d.status(); s.Ready || s.Consul.Connected || len(s.NotReady) == 0 {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
	if got := d.get("/healthz"); got != "ok\n" {
		t.Errorf("healthz: %q", got)
	}
	s.Restart()
	m.wantServices("jorc web")
	m.put("k", "1")
	m.wantFile("t", "1")
	m.eventually("ready", func() error { return lacks(d.get("/healthz?ready"), "ok\n") })
	d.wantNotified("STATUS=ready; 2 services, 1 template\n")

	m.configure("nonsense")
	d.signal(syscall.SIGHUP)
	d.wantNotified("RELOADING=1\nMONOTONIC_USEC=")
	d.wantSaid("the new configuration is invalid; the agent keeps the current one")
	m.eventually("the error in the status", func() error {
		if r := d.status().Reload; r.OK || lacks(r.Error, "jorc.hcl:1,") != nil {
			return fmt.Errorf("got %+v", r)
		}
		return nil
	})
	m.put("k", "2")
	m.wantFile("t", "2")
	m.configure(strings.ReplaceAll(oneOfEach, "{{", "now {{"))
	d.signal(syscall.SIGHUP)
	m.wantFile("t", "now 2")
	m.eventually("the success in the status", func() error {
		if r := d.status().Reload; !r.OK || r.Error != "" {
			return fmt.Errorf("got %+v", r)
		}
		return nil
	})
	d.signal(syscall.SIGTERM)
	d.wantExit(0)
	d.wantNotified("STOPPING=1\n")
	m.wantServices("jorc web")
}

// TestTwoAgents: the second one on a state directory, or on a port, says so.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach)
	d := m.agent()
	d.wantNotified("READY=1")
	for _, args := range [][]string{
		{"agent", "--config", m.path("jorc.hcl")},
		{"daemon", "--config=" + m.path("jorc.hcl")},
		{"agent", "--once", "--config", m.path("jorc.hcl")},
		{"render", "--config", m.path("jorc.hcl")},
	} {
		got := m.run(args...)
		if want := fmt.Sprintf("held by pid %d", d.cmd.Process.Pid); got.code != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: got %+v, want exit 1 and %s", args, got, want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m.configure(fmt.Sprintf("http { address = %q }", l.Addr()))
	got := m.run("agent", "--config", m.path("jorc.hcl"), "--state-dir", m.path("other"))
	if got.code != exitFailed || !strings.Contains(got.stderr, "jorc: status API on "+l.Addr().String()+": bind: address already in use; ") {
		t.Errorf("taken port: got %+v", got)
	}
	m.configure("http { adr = \"\" }")
	if got := m.run("agent", "--config", m.path("jorc.hcl")); got.code != exitUsage || !strings.Contains(got.stderr, "jorc.hcl:1,8") {
		t.Errorf("bad configuration: got %+v", got)
	}
}

// TestTwoAgentsOfOneName: two agents with one node name, as when one was started
// with another's Consul, say so both, in their logs, status and doctor.
func TestTwoAgentsOfOneName(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), "http { address = \"127.0.0.1:0\" }\nmember {}")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.write("other.hcl", fmt.Sprintf("http { address = %q }\nmember {}", l.Addr()))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	first := m.agent()
	first.wantNotified("READY=1")
	m.eventually("the host to be a member", func() error {
		if got := m.run("cluster", "members", "--count"); got.stdout != "1\n" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	other := m.path("other")
	second := m.start("agent", "--config", m.path("other.hcl"), "--state-dir", other)
	for _, d := range []*process{first, second} {
		d.wantSaid("another agent was given the same node name")
	}
	m.eventually("the status to name the other", func() error {
		return lacks(first.status().Rival, ":"+other+", was given the node name")
	})
	got := m.run("doctor", "--config", m.path("other.hcl"), "--state-dir", other, "-o", "plain")
	if want := ", but reports: another agent, "; !strings.Contains(got.stdout, want) || strings.Contains(got.stdout, ":"+other+", was") {
		t.Errorf("doctor: %+v, want %q of the first", got, want)
	}
}

// TestOnStop: what a clean stop does with services.
func TestOnStop(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	m := newMachine(t, s, "")
	for _, test := range []struct{ conf, want string }{
		{`on_stop = "keep"`, "jorc keep one"},
		{`on_stop = "maintenance"`, "jorc keep one!"},
		{`on_stop = "deregister"`, "keep"},
	} {
		m.configure(test.conf + `
http { address = "" }
service "one" { port = 80 }
service "keep" {
  port    = 81
  on_stop = "keep"
}
`)
		d := m.agent()
		d.wantNotified("READY=1")
		m.wantServices("jorc keep one")
		d.signal(syscall.SIGTERM)
		d.wantExit(0)
		m.wantServices(test.want)
	}
	m.configure(`http { address = "" }`)
	d := m.agent()
	d.wantNotified("READY=1")
	m.wantServices("jorc")
	d.signal(syscall.SIGINT)
	d.wantExit(0)
}

// TestKilled: kill -9 loses nothing: the next agent continues, a reload that was
// cut off included.
func TestKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach+`
template "slow" {
  contents    = "{{ key \"k\" }}"
  destination = "DIR/slow"
  reload      = ["sh", "-c", "echo $$ >>DIR/runs; while ! test -e DIR/go; do sleep 0.05; done; cat DIR/slow >DIR/loaded"]
}
`)
	m.put("k", "1")
	first := m.agent()
	m.wantServices("jorc web")
	m.wantFile("t", "1")
	m.eventually("the reload", func() error { return lacks(m.read("runs"), "\n") })
	first.signal(syscall.SIGKILL)
	first.wantExit(-1)
	var pid int
	if _, err := fmt.Sscan(m.read("runs"), &pid); err != nil {
		t.Fatal(err)
	}
	if err := consultest.KillGroup(pid); err != nil {
		t.Fatal(err)
	}
	m.wantServices("jorc web")
	m.put("k", "2")

	m.write("go", "")
	second := m.agent()
	m.wantFile("t", "2")
	m.wantFile("slow", "2")
	m.wantFile("loaded", "2")
	m.wantServices("jorc web")
	second.wantSaid("repaired an interrupted replacement")
	if strings.Contains(second.said.String(), "service registered: id=web") {
		t.Error("a service that was there was registered again")
	}
	m.eventually("all to be well", func() error {
		if s := second.status(); !s.Ready {
			return fmt.Errorf("got %v", s.NotReady)
		}
		return nil
	})
	if left, err := os.ReadDir(m.path("state/journal")); len(left) > 0 || err != nil {
		t.Errorf("journal: %v, %v", left, err)
	}
}

// TestHold: the hold file stops replacements until it is gone.
func TestHold(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), oneOfEach)
	m.put("k", "1")
	d := m.agent()
	m.wantFile("t", "1")
	m.write("state/hold", "audit\n")
	m.put("k", "2")
	m.eventually("the hold to show", func() error {
		if s := d.status(); lacks(s.Held, "audit") != nil || s.Templates[0].State != web.TemplateFailed || lacks(s.Templates[0].Error, "audit") != nil {
			return fmt.Errorf("got %+v", s)
		}
		return nil
	})
	m.wantFile("t", "1")
	if err := os.Remove(m.path("state/hold")); err != nil {
		t.Fatal(err)
	}
	m.wantFile("t", "2")
}

// TestEditedFiles: the agent restores a file that was edited by hand through its check
// and reload, or reports it where on_edit says so.
func TestEditedFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t, consultest.Start(t), `
http { address = "127.0.0.1:0" }
template "restored" {
  contents    = "ours"
  destination = "DIR/restored"
  check       = ["sh", "-c", "echo check >>DIR/calls"]
  reload      = ["sh", "-c", "echo reload >>DIR/calls"]
}
template "reported" {
  contents    = "ours"
  destination = "DIR/reported"
  on_edit     = "report"
}
`)
	d := m.agent()
	m.wantFile("restored", "ours")
	m.wantFile("reported", "ours")
	m.wantFile("calls", "check\nreload\n")
	m.write("reported", "by hand")
	m.write("restored", "by hand")
	m.wantFile("restored", "ours")
	m.wantFile("calls", "check\nreload\ncheck\nreload\n")
	m.eventually("the status to tell of the edits", func() error {
		edited := map[string]string{}
		for _, s := range d.status().Templates {
			edited[s.Name] = s.Edited
		}
		return errors.Join(lacks(edited["restored"], "restored at"), lacks(edited["reported"], "changed by another program"))
	})
	if got := m.read("reported"); got != "by hand" {
		t.Errorf("a file whose edits are only reported is %q", got)
	}
}
