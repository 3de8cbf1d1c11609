package command

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := []struct {
		name string
		cmd  Command
		want Result // without Took
	}{
		{name: "success", cmd: Command{Args: []string{"true"}}, want: Result{}},
		{name: "exit code", cmd: sh("exit 7"), want: Result{ExitCode: 7}},
		{name: "signal", cmd: sh("kill -KILL $$"), want: Result{ExitCode: 128 + 9}},
		{name: "both streams in order", cmd: sh("echo a; echo b >&2; echo c"), want: Result{Output: "a\nb\nc\n"}},
		{name: "not UTF-8", cmd: sh(`printf 'a\377\376b\303'`), want: Result{Output: "a\uFFFDb\uFFFD"}},
		{name: "stdin is empty", cmd: Command{Args: []string{"cat"}}, want: Result{}},
		{name: "directory", cmd: Command{Args: []string{"pwd", "-P"}, Dir: dir}, want: Result{Output: resolved(t, dir) + "\n"}},
		{name: "exact environment", cmd: Command{Args: []string{"/usr/bin/env"}, Env: []string{"A=b"}}, want: Result{Output: "A=b\n"}},
		{name: "arguments are not split", cmd: Command{Args: []string{"printf", "%s|", "a b", "$HOME", ""}}, want: Result{Output: "a b|$HOME||"}},
		{
			name: "output cap",
			cmd:  Command{Args: []string{"sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; printf end"}, MaxOutput: 10},
			want: Result{Output: "xxxxxxxend", Truncated: true},
		},
		{
			name: "cap cuts no character",
			cmd:  Command{Args: []string{"printf", "äöü"}, MaxOutput: 3},
			want: Result{Output: "ü", Truncated: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Run(t.Context(), tt.cmd)
			if err != nil {
				t.Fatal(err)
			}
			got.Took = 0
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestRunCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string, perm fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), perm); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		name string
		cmd  Command
		want error
		code int
	}{
		{name: "no arguments", want: ErrNotFound, code: 127},
		{name: "empty name", cmd: Command{Args: []string{""}}, want: ErrNotFound, code: 127},
		{name: "not in PATH", cmd: Command{Args: []string{"jorc-no-such-program"}}, want: ErrNotFound, code: 127},
		{name: "missing path", cmd: Command{Args: []string{filepath.Join(dir, "none")}}, want: ErrNotFound, code: 127},
		{name: "missing interpreter", cmd: Command{Args: []string{write("script", "#!/no/such\n", 0o755)}}, want: ErrNotFound, code: 127},
		{name: "not executable", cmd: Command{Args: []string{write("plain", "x", 0o644)}}, want: ErrPermission, code: 126},
		{name: "a directory", cmd: Command{Args: []string{dir}}, want: ErrPermission, code: 126},
		{name: "not a program", cmd: Command{Args: []string{write("junk", "junk", 0o755)}}, want: ErrPermission, code: 126},
		{name: "working directory missing", cmd: Command{Args: []string{"true"}, Dir: filepath.Join(dir, "none")}, want: ErrPermission, code: 126},
		{name: "working directory is a file", cmd: Command{Args: []string{"true"}, Dir: write("file", "", 0o644)}, want: ErrPermission, code: 126},
		{name: "unknown user", cmd: Command{Args: []string{"true"}, User: "jorc-no-such-user"}, want: ErrPermission, code: 126},
		{name: "NUL in an argument", cmd: Command{Args: []string{"true", "a\x00b"}}, want: ErrPermission, code: 126},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Run(t.Context(), tt.cmd)
			if !errors.Is(err, tt.want) {
				t.Errorf("error: got %v, want %v", err, tt.want)
			}
			if got.ExitCode != tt.code {
				t.Errorf("exit code: got %d, want %d", got.ExitCode, tt.code)
			}
		})
	}
}

// TestTimeoutKillsGroup has a command and a grandchild that ignore SIGTERM.
func TestTimeoutKillsGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := sh(`trap '' TERM; sh -c 'echo $$ >pid.new; mv pid.new pid; while :; do sleep 60; done' & while :; do wait; done`)
	c.Dir = dir
	c.Timeout, c.Grace = 300*time.Millisecond, 10*time.Millisecond
	// The timeout may pass before the grandchild has printed its pid: then the test
	// repeats with a longer one.
	var pid int
	for pid == 0 {
		got, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if !got.TimedOut || got.ExitCode != ExitTimeout || got.OK() {
			t.Errorf("got %+v, want a timeout with code %d", got, ExitTimeout)
		}
		pid = readPID(filepath.Join(dir, "pid"))
		c.Timeout *= 2
	}
	waitFor(t, "the grandchild is gone", func() bool { return gone(pid) })
}

// TestTimeoutGrace: the command and its child can end by themselves.
func TestTimeoutGrace(t *testing.T) {
	t.Parallel()
	c := sh(`trap 'echo parent; exit 0' TERM; (trap 'echo child; exit 0' TERM; echo ready; while :; do sleep 0.01; done) & while :; do sleep 0.01; done`)
	c.Timeout, c.Grace = 500*time.Millisecond, time.Minute
	got, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !got.TimedOut || got.ExitCode != ExitTimeout {
		t.Errorf("got %+v, want a timeout although it exited with 0", got)
	}
	if strings.Contains(got.Output, "ready") && !(strings.Contains(got.Output, "parent") && strings.Contains(got.Output, "child")) {
		t.Errorf("output: got %q, want both to have cleaned up", got.Output)
	}
}

func TestContextEndsGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pids := &lineWriter{want: 2, full: cancel}
	c := sh("echo $$; sh -c 'echo $$; while :; do sleep 60; done'")
	c.Dir, c.Stdout = dir, pids
	got, err := Run(ctx, c)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error: got %v, want context.Canceled", err)
	}
	if got.TimedOut || got.OK() || got.ExitCode != 128+int(syscall.SIGTERM) {
		t.Errorf("got %+v, want ended by SIGTERM, not timed out", got)
	}
	for line := range strings.Lines(got.Output) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "pid "+strconv.Itoa(pid)+" is gone", func() bool { return gone(pid) })
	}
}

func TestContextEndedBefore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "ran")
	_, err := Run(ctx, Command{Args: []string{"touch", path}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat: got %v, want that it never ran", err)
	}
}

// TestDaemonLeftBehind: a child keeps stdout open; Run returns with the output,
// and the child keeps running.
func TestDaemonLeftBehind(t *testing.T) {
	t.Parallel()
	got, err := Run(t.Context(), sh("(while :; do sleep 60; done) & echo $!"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(got.Output))
	if err != nil {
		t.Fatalf("output: %v, want a pid", err)
	}
	if !got.OK() {
		t.Errorf("got %+v, want success", got)
	}
	if gone(pid) {
		t.Errorf("pid %d: got gone, want it left alone", pid)
	}
	pgid, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-pgid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestSinks(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	c := sh("printf out; printf err >&2")
	c.Stdout, c.Stderr = &out, &errOut
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if out.String() != "out" || errOut.String() != "err" {
		t.Errorf("two sinks: got %q and %q, want out and err", &out, &errOut)
	}

	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if both.String() != "outerr" {
		t.Errorf("one sink: got %q, want outerr", &both)
	}
}

// TestBrokenSink: a sink with an error does not make the command fail or hang.
func TestBrokenSink(t *testing.T) {
	t.Parallel()
	c := Command{Args: []string{"head", "-c", "1000000", "/dev/zero"}, Stdout: brokenWriter{}}
	got, err := Run(t.Context(), c)
	if err != nil || !got.OK() {
		t.Errorf("got %+v, %v, want success", got, err)
	}
}

// TestBusyProgram: a program is open for writing during the first attempt.
func TestBusyProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "script")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("#!/bin/sh\nexit 3\n"); err != nil {
		t.Fatal(err)
	}
	// Some kernels (6.11, 6.12) let it run.
	got, err := Run(t.Context(), Command{Args: []string{path}})
	if err != nil && !errors.Is(err, syscall.ETXTBSY) || err == nil && got.ExitCode != 3 {
		t.Errorf("while written: got %+v, %v, want ETXTBSY", got, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err = Run(t.Context(), Command{Args: []string{path}})
	if err != nil || got.ExitCode != 3 {
		t.Errorf("after: got %+v, %v, want exit code 3", got, err)
	}
}

func sh(script string) Command { return Command{Args: []string{"sh", "-c", script}} }

func resolved(t *testing.T, path string) string {
	t.Helper()
	p, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lineWriter calls full after a number of lines.
type lineWriter struct {
	want int
	full func()
}

func (w *lineWriter) Write(p []byte) (int, error) {
	if w.want -= bytes.Count(p, []byte("\n")); w.want == 0 {
		w.full()
	}
	return len(p), nil
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func readPID(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// gone reports whether a process has ended; a zombie has.
func gone(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

func TestEnviron(t *testing.T) {
	for _, name := range secrets {
		t.Setenv(name, "hidden")
	}
	t.Setenv("JORC_TEST_KEPT", "kept")
	got := Environ("JORC_TEST_KEPT=changed", "CONSUL_HTTP_TOKEN=asked-for")
	for _, kv := range got {
		if strings.HasSuffix(kv, "=hidden") {
			t.Errorf("got %s, want it left out", kv)
		}
	}
	for _, want := range []string{"JORC_TEST_KEPT=changed", "CONSUL_HTTP_TOKEN=asked-for", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(got, want) {
			t.Errorf("got no %s", want)
		}
	}

	res, err := Run(t.Context(), Command{Args: []string{"env"}, MaxOutput: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(res.Output, "hidden") {
		t.Errorf("a command saw a secret: %s", res.Output)
	}
	if !strings.Contains(res.Output, "JORC_TEST_KEPT=kept\n") {
		t.Errorf("got %s, want JORC_TEST_KEPT in it", res.Output)
	}
}

func TestOwnUser(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{me.Username, me.Uid} {
		res, err := Run(t.Context(), Command{Args: []string{"sh", "-c", "id -u; echo $HOME $USER"}, User: name})
		if err != nil {
			t.Fatal(err)
		}
		if want := me.Uid + "\n" + me.HomeDir + " " + me.Username + "\n"; res.Output != want {
			t.Errorf("user %s: got %q, want %q", name, res.Output, want)
		}
	}
}
