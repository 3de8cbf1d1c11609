package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/dev"
)

// newDev starts `jorc dev` in an environment that names another Consul, and
// waits for its announcement.
func newDev(t *testing.T, args ...string) *process {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	m.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir, "TMPDIR=" + m.dir, "CONSUL_BIN=" + consultest.Binary(t),
		"CONSUL_HTTP_ADDR=127.0.0.1:1", "CONSUL_HTTP_TOKEN=no", "JORC_DNS_ADDR=127.0.0.1:1", "JORC_STATE_DIR=/nonexistent", "CONSUL_HTTP_SSL=true",
	}
	return m.start(append([]string{"dev"}, args...)...)
}

// consuls are the processes that run in the machine's directory.
func (m *machine) consuls() (found []string) {
	m.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, file := range lines {
		data, err := os.ReadFile(file)
		if err == nil && bytes.Contains(data, []byte("-config-file="+m.dir)) {
			found = append(found, file)
		}
	}
	return found
}

// TestDevTry: every command that the announcement names works, with nothing
// but what it says.
func TestDevTry(t *testing.T) {
	t.Parallel()
	d := newDev(t)
	d.wantSaid("Ctrl-C ends it all.\n")
	tried := 0
	for line := range strings.Lines(d.said.String()) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !ok || strings.HasPrefix(command, " ") || strings.HasPrefix(command, "watch ") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), consultest.NoConfig}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		if strings.HasSuffix(command, "echo all are there") && string(out) != "all are there\n" {
			t.Errorf("%s: %s", command, out)
		}
		tried++
	}
	if tried != 9 {
		t.Errorf("tried %d commands, want 9", tried)
	}
	d.wantSaid("configuration reloaded")
	if len(d.m.consuls()) != 1 {
		t.Errorf("Consul processes: %v", d.m.consuls())
	}
	d.signal(syscall.SIGINT)
	d.wantExit(0)
	if left, err := os.ReadDir(d.m.dir); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if left := d.m.consuls(); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// TestDevKilled: Consul dies with jorc, however jorc dies, and jorc with Consul.
func TestDevKilled(t *testing.T) {
	t.Parallel()
	d := newDev(t, "-o", "json")
	d.wantSaid("\n}\n")
	d.signal(syscall.SIGKILL)
	d.wantExit(-1)
	d.m.eventually("Consul to end", func() error {
		if left := d.m.consuls(); len(left) > 0 {
			return fmt.Errorf("still running: %v", left)
		}
		return nil
	})

	d = newDev(t)
	d.wantSaid("Ctrl-C ends it all.\n")
	pids := d.m.consuls()
	var pid int
	if _, err := fmt.Sscanf(strings.Join(pids, " "), "/proc/%d/cmdline", &pid); err != nil {
		t.Fatal(pids, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.wantExit(exitFailed)
	d.wantSaid(fmt.Sprintf("jorc: Consul (pid %d) has ended: signal: killed; ", pid))
}

// recordedProcess is the end of a process that a file records as one of a session; with other, as another
// process that had its number.
func recordedProcess(t *testing.T, file string, other bool) chan error {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	start := command.StartTime(cmd.Process.Pid)
	if other {
		start += "1"
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"pid":%d,"start":%q,"boot":%q}`, cmd.Process.Pid, start, strings.TrimSpace(string(boot)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ended
}

// TestDevAfterKill: the next jorc dev removes what a killed one left, the directory and a
// Consul that outlived it, and touches neither one that runs nor another process that got the number.
func TestDevAfterKill(t *testing.T) {
	t.Parallel()
	killed := newDev(t, "-o", "json")
	killed.wantSaid("\n}\n")
	m := killed.m
	dir := func(text string) string {
		var p dev.Places
		if err := json.Unmarshal([]byte(text[strings.Index(text, "{\n"):strings.Index(text, "\n}\n")+3]), &p); err != nil {
			t.Fatal(err)
		}
		return p.Dir
	}
	gone := dir(killed.said.String())
	killed.signal(syscall.SIGKILL)
	killed.wantExit(-1)
	if _, err := os.Stat(filepath.Join(gone, "consul.pid")); err != nil {
		t.Fatalf("want the killed one's directory to be there: %v", err)
	}
	// A Consul that outlived it, and another process with the number of one.
	outlived := recordedProcess(t, filepath.Join(gone, "consul.pid"), false)
	second := m.path("jorc-dev-second")
	if err := os.Mkdir(second, 0o700); err != nil {
		t.Fatal(err)
	}
	m.write("jorc-dev-second/dev.lock", "")
	other := recordedProcess(t, filepath.Join(second, "consul.pid"), true)
	if err := os.Mkdir(m.path("jorc-dev-notes"), 0o700); err != nil { // a user's
		t.Fatal(err)
	}

	running := m.start("dev", "-o", "json")
	running.wantSaid("\n}\n")
	<-outlived
	for _, dir := range []string{gone, second} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it to be gone", dir, err)
		}
	}
	select {
	case err := <-other:
		t.Errorf("a process that was not jorc's has ended: %v", err)
	default:
	}
	used := dir(running.said.String())
	last := m.start("dev", "-o", "json")
	last.wantSaid("\n}\n")
	for _, dir := range []string{used, m.path("jorc-dev-notes")} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("want it untouched: %v", err)
		}
	}
	for _, d := range []*process{running, last} {
		d.signal(syscall.SIGINT)
		d.wantExit(0)
	}
	if left, err := filepath.Glob(m.path("jorc-dev*")); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v, want the user's directory", left, err)
	}
}

// TestDevJSON: for programs, the places are a document on stdout.
func TestDevJSON(t *testing.T) {
	t.Parallel()
	m := newDev(t, "--help").m
	cmd := m.command("dev", "-o", "json", "--keep", m.path("kept"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	var p dev.Places
	if err := json.NewDecoder(out).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Dir != m.path("kept") || !p.Kept || p.PID != cmd.Process.Pid || p.HTTPAddr == "" || p.NotReady == nil {
		t.Errorf("got %+v", p)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.Files[0]); err != nil {
		t.Errorf("it is not kept: %v", err)
	}
}

// TestDevWrongUsage: what cannot be is said at once.
func TestDevWrongUsage(t *testing.T) {
	t.Parallel()
	m := &machine{t: t, dir: t.TempDir(), env: []string{"PATH=/nonexistent"}}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"dev x", exitUsage, `jorc: no arguments expected; see 'jorc dev --help'`},
		{"dev --http-addr 127.0.0.1:1", exitUsage, "jorc: --http-addr cannot be given: jorc dev brings its own; see 'jorc dev --help'"},
		{"--state-dir /x dev", exitUsage, "jorc: --state-dir cannot be given: jorc dev brings its own; see 'jorc dev --help'"},
		{"dev", exitFailed, "jorc: no consul program found: install Consul ("},
	} {
		got := m.run(strings.Fields(test.args)...)
		if got.code != test.code || got.stdout != "" || !strings.HasPrefix(got.stderr, test.want) {
			t.Errorf("%s: got %+v, want %d, %s", test.args, got, test.code, test.want)
		}
	}
	m.env = append(m.env, "CONSUL_BIN="+consultest.Binary(t), "TMPDIR="+m.dir)
	m.write("bad.hcl", "nonsense")
	if got := m.run("dev", "--config", m.path("bad.hcl")); got.code != exitUsage || !strings.Contains(got.stderr, "bad.hcl:1,") {
		t.Errorf("bad configuration: got %+v", got)
	}
	if left, err := filepath.Glob(m.path("jorc-dev-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
