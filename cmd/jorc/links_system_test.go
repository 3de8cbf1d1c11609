//go:build system

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/consultest"
)

const alice = 1000 // a user who is not trusted

// planted is a machine of root with a directory of alice's and one that only root
// may enter, to which alice's links lead.
type planted struct {
	*machine
	home, vault, secret string
}

func newPlanted(t *testing.T, conf string) *planted {
	t.Helper()
	m := newMachine(t, consultest.Start(t), conf)
	p := &planted{machine: m, home: m.path("home"), vault: m.path("vault"), secret: m.path("vault/secret")}
	p.ok(os.Mkdir(p.home, 0o755), os.Chown(p.home, alice, alice), os.Mkdir(p.vault, 0o700), os.WriteFile(p.secret, []byte("secret\n"), 0o600))
	return p
}

func (p *planted) ok(errs ...error) {
	p.t.Helper()
	if err := errors.Join(errs...); err != nil {
		p.t.Fatal(err)
	}
}

// link makes a symbolic link of alice's.
func (p *planted) link(to, name string) string {
	p.t.Helper()
	path := filepath.Join(p.home, name)
	p.ok(os.Symlink(to, path), os.Lchown(path, alice, alice))
	return path
}

// safe fails unless root's directory is as it was.
func (p *planted) safe() {
	p.t.Helper()
	info, err := os.Lstat(p.secret)
	p.ok(err)
	st := info.Sys().(*syscall.Stat_t)
	if p.read("vault/secret") != "secret\n" || info.Mode() != 0o600 || st.Uid != 0 || st.Gid != 0 {
		p.t.Errorf("root's file holds %q, mode %v, owner %d:%d; want it as it was", p.read("vault/secret"), info.Mode(), st.Uid, st.Gid)
	}
	if all, err := os.ReadDir(p.vault); err != nil || len(all) != 1 {
		p.t.Errorf("root's directory holds %v, %v; want the one file", all, err)
	}
}

// refused runs a command that must fail and name the path.
func (p *planted) refused(path string, args ...string) {
	p.t.Helper()
	if got := p.run(args...); got.code == exitOK || !strings.Contains(got.stderr, path) {
		p.t.Errorf("jorc %s: %+v, want %s refused", strings.Join(args, " "), got, path)
	}
	p.safe()
}

// TestPlantedLinks: whatever jorc writes beside templates, links of another user
// lead it nowhere.
func TestPlantedLinks(t *testing.T) {
	const conf = `
http { address = "127.0.0.1:0" }
orchestrator {
  interval = "1s"
  sink "file" { path = "DIR/home/events" }
}
member {}
log_store { dir = "DIR/home/logs" }
workflow "plain" {
  task "one" { script = "echo hello" }
}
workflow "fails" {
  task "one" { script = "echo hello; exit 3" }
}
workflow "other" {
  task "one" {
    script = "echo hello"
    user   = "1000"
  }
}
`
	p := newPlanted(t, conf)
	export := p.link(p.secret, "export")
	p.refused(export, "service", "export", "--format", "json", "--file", export)
	version := p.link(p.secret, "version") // a whole file takes the link's place
	p.must("update", "local", "v1", "--version-file", version)
	p.safe()
	below := p.link(p.vault, "below")
	p.refused(below, "update", "local", "v1", "--version-file", below+"/secret")
	p.refused(below, "service", "export", "--format", "hosts", "--file", below+"/secret")

	own := []string{"agent", "--config", p.path("jorc.hcl"), "--state-dir"}
	p.refused(p.home, append(own, p.home)...)
	state := p.link(p.vault, "state")
	p.refused(state, append(own, state)...)
	run := []string{"workflow", "run", "plain", "--alone", "--config", p.path("jorc.hcl"), "--state-dir"}
	p.refused(state, append(run, state)...)
	p.refused(p.home, append(run, p.home+"/deep/state")...)

	// The log of a task that fails is not stored.
	logs := p.link(p.vault, "logs")
	got := p.run("workflow", "run", "fails", "--alone", "--id", "j1", "--config", p.path("jorc.hcl"), "-o", "json")
	if !strings.Contains(got.stdout, `"log_error": "not stored: log store: symbolic link `+logs) {
		t.Errorf("the log store %s: %+v, want it refused", logs, got)
	}
	p.safe()

	// The directory with a task's script and token is not another user's.
	env := p.env
	p.env = append(append([]string{}, env...), "TMPDIR="+p.home)
	if got := p.run("workflow", "run", "other", "--alone", "--id", "j2", "--config", p.path("jorc.hcl")); got.code != exitFailed || !strings.Contains(got.stdout+got.stderr, p.home) {
		t.Errorf("a task with TMPDIR=%s: %+v, want it refused", p.home, got)
	}
	p.env = env

	events := p.link(p.secret, "events")
	p.must("cluster", "init", "default")
	d := p.agent()
	p.eventually("the sink's failure", func() error { return lacks(d.said.String(), events) })
	p.safe()
}

// TestLostAttributes: of a file whose attributes jorc may not set, the replacement
// allows no more, and what is lost is reported.
func TestLostAttributes(t *testing.T) {
	m := newMachine(t, consultest.Start(t), `
template "t" {
  contents    = "new\n"
  destination = "DIR/conf"
}`)
	for dir := m.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(builtOnce(t))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(m.path("jorc"), program, 0o755), os.Chmod(m.path("jorc.hcl"), 0o644), os.Chown(m.dir, alice, alice))
	for _, name := range []string{"conf", "export"} {
		path := m.path(name)
		err = errors.Join(err, os.WriteFile(path, []byte("old\n"), 0o640), os.Chown(path, alice, alice), unix.Lsetxattr(path, "security.SMACK64", []byte("label"), 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"conf":   {"render", "--once", "--config", m.path("jorc.hcl")},
		"export": {"service", "export", "--format", "hosts", "--file", m.path("export")},
	} {
		cmd := m.command(args...)
		cmd.Path = m.path("jorc")
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: alice, Gid: alice}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "security.SMACK64") || !strings.Contains(string(out), m.path(name)) {
			t.Errorf("jorc %s: %v, %s; want the lost attribute reported", strings.Join(args, " "), err, out)
		}
		if info, err := os.Stat(m.path(name)); err != nil || info.Mode() != 0o640 || m.read(name) == "old\n" {
			t.Errorf("%s: %v, %v, %q; want it replaced, with its mode", name, info, err, m.read(name))
		}
	}
}
