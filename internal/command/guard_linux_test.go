package command

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// With one of these arguments the test program is a guard, or a jorc that is
// killed.
const (
	guardArg  = "guard"
	runnerArg = "runner"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == guardArg {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
		os.Exit(Guarded(os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == runnerArg {
		r, err := Run(context.Background(), guarded(os.Args[2:]...))
		if err != nil {
			os.Exit(1)
		}
		os.Exit(r.ExitCode)
	}
	os.Exit(m.Run())
}

func guarded(args ...string) Command {
	return Command{Args: args, Guard: []string{"/proc/self/exe", guardArg}}
}

// TestGuardedRun: a guard does not change the result of a command.
func TestGuardedRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cmd  Command
		want Result
	}{
		{"success", guarded("true"), Result{}},
		{"output", guarded("sh", "-c", "echo a; echo b >&2; exit 7"), Result{ExitCode: 7, Output: "a\nb\n"}},
		{"signal", guarded("sh", "-c", "kill -KILL $$"), Result{ExitCode: 137}},
		{"arguments", guarded("printf", "%s|", "a b", "", "-x"), Result{Output: "a b||-x|"}},
		{"stdin is empty", guarded("cat"), Result{}},
		{"the pipe is not passed on", guarded("test", "!", "-e", "/proc/self/fd/3"), Result{}},
		{"a daemon is left alone", guarded("sh", "-c", "sleep 1000 >&2 & kill -0 $!; echo $?; kill $!"), Result{Output: "0\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Run(t.Context(), test.cmd)
			got.Took = 0
			if err != nil || got != test.want {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
	if r, err := Run(t.Context(), guarded("jorc-no-such-program")); r.ExitCode != ExitNotFound || err == nil {
		t.Errorf("no such program: got %+v, %v", r, err)
	}
}

// family is a command with children, which all hold a pipe open until they end.
type family struct {
	t    *testing.T
	pipe *os.File
	in   *bufio.Reader
	args []string
}

// newFamily returns a family whose members trap signals with trap.
func newFamily(t *testing.T, trap string) *family {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // O_RDWR does not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	child := "sh -c '" + trap + "sleep 1000; sleep 1000'"
	return &family{t, pipe, bufio.NewReader(in), []string{"sh", "-c", "exec 9>" + name + "; " + trap + child + " & echo $PPID >&9; " + child + "; " + child}}
}

// started returns the pid of the command's parent, the guard.
func (f *family) started() int {
	f.t.Helper()
	line, err := f.in.ReadString('\n')
	if err != nil {
		f.t.Fatal(err)
	}
	_ = f.pipe.Close()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		f.t.Fatal(err)
	}
	return pid
}

// wantEnd waits until the whole family has ended.
func (f *family) wantEnd() {
	f.t.Helper()
	if _, err := io.Copy(io.Discard, f.in); err != nil {
		f.t.Fatal(err)
	}
}

// TestGuardedKilled kills the process that runs a command: the command ends with
// all its children, also if they ignore SIGTERM.
func TestGuardedKilled(t *testing.T) {
	t.Parallel()
	for name, trap := range map[string]string{"obedient": "", "stubborn": "trap \"\" TERM; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFamily(t, trap)
			runner := exec.Command("/proc/self/exe", append([]string{runnerArg}, f.args...)...)
			if err := runner.Start(); err != nil {
				t.Fatal(err)
			}
			f.started()
			_ = runner.Process.Kill()
			_ = runner.Wait() // it was killed
			f.wantEnd()
		})
	}
}

// TestGuardKilled kills the guard: command and children end with it, and Run
// returns that result.
func TestGuardKilled(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "trap \"\" TERM; ")
	ended := make(chan Result)
	go func() {
		r, err := Run(context.Background(), guarded(f.args...))
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		ended <- r
	}()
	if err := syscall.Kill(f.started(), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if r := <-ended; r.ExitCode != 137 {
		t.Errorf("got %+v, want exit 137", r)
	}
	f.wantEnd()
}

// TestGuardedStopped: timeout and the end of ctx work with a guard.
func TestGuardedStopped(t *testing.T) {
	t.Parallel()
	f := newFamily(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Result)
	go func() {
		r, err := Run(ctx, guarded(f.args...))
		if err == nil {
			t.Error("Run: no error")
		}
		ended <- r
	}()
	f.started()
	cancel()
	if r := <-ended; r.ExitCode != 143 {
		t.Errorf("got %+v, want exit 143", r)
	}
	f.wantEnd()
}
