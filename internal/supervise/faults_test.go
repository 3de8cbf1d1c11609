package supervise_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/supervise"
)

// wantGone waits until no process of a group is left but zombies.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	consultest.Eventually(t, fmt.Sprintf("the end of process %d", pid), func(context.Context) error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil
		}
		if _, after, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(after, "Z") {
			return nil
		}
		return fmt.Errorf("it is there: %s", stat)
	})
}

// running waits until the process runs and returns its number.
func (s *supervised) running() (pid int) {
	s.t.Helper()
	s.wantStatus("running", func(st supervise.Status) bool {
		pid = st.PID
		return st.State == supervise.StateRunning && st.PID > 0
	})
	return pid
}

// TestIgnoresStop: a process that ignores its stop signal is killed after its kill
// timeout, for a restart and for good.
func TestIgnoresStop(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := app("trap '' TERM; echo one; while :; do sleep 0.01; done")
	p.KillTimeout = 50 * time.Millisecond
	s.Configure([]config.Process{p}, nil)
	s.wantOutput("one\n")
	first := s.running()
	p.Command = app(strings.ReplaceAll(p.Command[2], "echo one", "echo two")).Command
	s.Configure([]config.Process{p}, nil)
	wantGone(t, first)
	s.wantOutput("one\ntwo\n")
	second := s.running()
	s.Configure(nil, nil)
	wantGone(t, second)
}

// TestStopsWithContext: when Run returns, no process runs.
func TestStopsWithContext(t *testing.T) {
	t.Parallel()
	var output buffer
	s := supervise.New(supervise.Options{
		StateDir: t.TempDir(), Stdout: &output, Log: hclog.NewNullLogger(), Environ: func() []string { return []string{"PATH=/bin:/usr/bin"} },
	})
	p := app("trap '' TERM; sleep 1000 & echo $$ $!; wait; while :; do sleep 0.01; done")
	p.KillTimeout = 10 * time.Millisecond
	s.Configure([]config.Process{p}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	consultest.Eventually(t, "the process", func(context.Context) error {
		if !strings.HasSuffix(output.String(), "\n") {
			return errors.New("it has not started")
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, pid := range strings.Fields(output.String()) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		wantGone(t, n)
	}
}

// TestDiesAtOnce: a process that ends is started again after growing pauses, its status says how it
// ended, and a new configuration ends the pause.
func TestDiesAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*config.Process)
		want   string
	}{
		{"exit code", func(p *config.Process) { p.Command[2] = "exit 3" }, "it ended with exit code 3"},
		{"success", func(p *config.Process) { p.Command[2] = "exit 0" }, "it ended with exit code 0"},
		{"signal", func(p *config.Process) { p.Command[2] = "kill -9 $$" }, "it ended with exit code 137 (SIGKILL)"},
		{"no program", func(p *config.Process) { p.Command = []string{"/nonexistent/program"} }, "/nonexistent/program: command not found"},
		{"no directory", func(p *config.Process) { p.Dir = "/nonexistent" }, "no such file or directory"},
		{"no user", func(p *config.Process) { p.User = "jorc-no-such-user" }, "unknown user jorc-no-such-user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			p := app("")
			p.MinHealthyTime = time.Hour
			tt.change(&p)
			s.Configure([]config.Process{p}, nil)
			var first supervise.Status
			s.wantStatus("failed", func(st supervise.Status) bool {
				first = st
				return st.State == supervise.StateFailed && strings.Contains(st.Error, tt.want)
			})
			if pause := first.Next.Sub(first.Since); pause < 500*time.Millisecond || first.PID != 0 {
				t.Errorf("got %+v, want a pause of about a second", first)
			}
			p = app("echo up; sleep 1000 & wait")
			s.Configure([]config.Process{p}, nil)
			s.wantOutput("up\n")
			s.wantStatus("no error", func(st supervise.Status) bool { return st.State == supervise.StateRunning && st.Error == "" })
		})
	}
}

// TestRestartStorm: many changes while a restart waits for its slot are one restart, and
// the last of several configurations counts.
func TestRestartStorm(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := app("echo 0; sleep 1000 & wait")
	p.Slot = "g"
	s.Configure([]config.Process{p}, []config.Template{{Name: "a"}})
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("0\n")
	s.running()
	for range 100 {
		if err := s.replace("a", "/a", ""); err != nil {
			t.Fatal(err)
		}
	}
	s.wantStatus("waiting for its slot", func(st supervise.Status) bool { return st.Pending == `a slot of "g"` })
	for i := range 10 {
		p.Command = []string{"/bin/sh", "-c", fmt.Sprintf("echo %d; sleep 1000 & wait", i+1)}
		s.Configure([]config.Process{p}, []config.Template{{Name: "a"}})
	}
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	<-s.slots
	s.wantOutput("0\n10\n")
	s.wantStatus("two starts", func(st supervise.Status) bool {
		return st.State == supervise.StateRunning && st.Starts == 2 && st.Pending == ""
	})
}

// TestSlotTrouble: a slot that cannot be taken is asked for again, and meanwhile the process
// runs as it is; a process that ends meanwhile needs no slot.
func TestSlotTrouble(t *testing.T) {
	t.Parallel()
	var asked, given atomic.Int32
	var output buffer
	s := &supervised{t: t, output: &output}
	s.run(supervise.Options{
		StateDir: t.TempDir(), Stdout: &output, Log: hclog.NewNullLogger(), Environ: func() []string { return []string{"PATH=/bin:/usr/bin"} },
		Slot: func(ctx context.Context, group string, limit int, reason string) (func(), error) {
			if group != "g" || limit != 2 || !strings.Contains(reason, "app") {
				t.Errorf("asked for %q, %d, %q", group, limit, reason)
			}
			if asked.Add(1) == 1 {
				return nil, errors.New("no leader")
			}
			given.Add(1)
			return func() { given.Add(-1) }, nil
		},
	})
	p := app("echo start; sleep 1000 & wait")
	p.Slot, p.MaxParallel = "g", 2
	s.Configure([]config.Process{p}, nil)
	s.wantOutput("start\n")
	s.running()
	p.Command = []string{"/bin/sh", "-c", "echo again; sleep 1000 & wait"}
	s.Configure([]config.Process{p}, nil)
	s.wantOutput("start\nagain\n")
	s.running()
	consultest.Eventually(t, "the slot given back", func(context.Context) error {
		if n := given.Load(); n != 0 {
			return fmt.Errorf("%d are held", n)
		}
		return nil
	})
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}

// TestSetBack: a change that is taken back while the restart waits for its slot needs neither: the process runs on, and
// others get the slot.
func TestSetBack(t *testing.T) {
	t.Parallel()
	var held atomic.Int32
	var output buffer
	s := &supervised{t: t, output: &output, slots: make(chan struct{})}
	s.run(supervise.Options{
		StateDir: t.TempDir(), Stdout: &output, Log: hclog.NewNullLogger(), Environ: func() []string { return []string{"PATH=/bin:/usr/bin"} },
		Slot: func(ctx context.Context, _ string, _ int, _ string) (func(), error) {
			held.Add(1)
			select {
			case s.slots <- struct{}{}:
				return func() { held.Add(-1) }, nil
			case <-ctx.Done():
				held.Add(-1)
				return nil, ctx.Err()
			}
		},
	})
	p := app("echo one; sleep 1000 & wait")
	p.Slot = "g"
	s.Configure([]config.Process{p}, nil)
	s.wantOutput("one\n")
	pid := s.running()
	for range 2 {
		next := p
		next.Command = []string{"/bin/sh", "-c", "echo two; sleep 1000 & wait"}
		s.Configure([]config.Process{next}, nil)
		s.wantStatus("waiting for its slot", func(st supervise.Status) bool { return st.Pending == `a slot of "g"` })
		s.Configure([]config.Process{p}, nil)
		<-s.slots
		s.wantStatus("nothing pending", func(st supervise.Status) bool { return st.Pending == "" })
		consultest.Eventually(t, "the slot given back", func(context.Context) error {
			if n := held.Load(); n != 0 {
				return fmt.Errorf("%d are held", n)
			}
			return nil
		})
	}
	if got := s.running(); got != pid || output.String() != "one\n" {
		t.Errorf("process %d with output %q, want %d as before", got, output.String(), pid)
	}
}

// TestForks: what a process leaves behind ends with it.
func TestForks(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := app("sleep 1000 & echo $!; exit 4")
	p.MinHealthyTime = time.Hour
	s.Configure([]config.Process{p}, nil)
	s.wantStatus("failed", func(st supervise.Status) bool { return strings.HasSuffix(st.Error, "exit code 4") })
	pid, _, _ := strings.Cut(s.output.String(), "\n")
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	wantGone(t, n)
}

// TestOutput: output arrives as it is written, whatever its lines are.
func TestOutput(t *testing.T) {
	t.Parallel()
	const long = 3 << 20
	var output buffer
	s := supervise.New(supervise.Options{
		StateDir: t.TempDir(), Stdout: &output, Stderr: &output, Log: hclog.NewNullLogger(),
		Environ: func() []string { return []string{"PATH=/bin:/usr/bin"} },
	})
	s.Configure([]config.Process{app(fmt.Sprintf(`head -c %d /dev/zero; printf '\377\0no newline' >&2`, long))}, nil)
	if err := s.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("\x00", long) + "\xff\x00no newline"
	if got := output.String(); got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}

// failing is a writer that fails after its first write, as a full disk does.
type failing struct{ writes atomic.Int32 }

func (w *failing) Write(p []byte) (int, error) {
	if w.writes.Add(1) == 1 {
		return len(p), nil
	}
	return 0, syscall.ENOSPC
}

// TestOutputCannotBeWritten: a process continues when its output is lost.
func TestOutputCannotBeWritten(t *testing.T) {
	t.Parallel()
	out := &failing{}
	s := supervise.New(supervise.Options{
		StateDir: t.TempDir(), Stdout: out, Stderr: out, Log: hclog.NewNullLogger(), Environ: func() []string { return []string{"PATH=/bin:/usr/bin"} },
	})
	done := filepath.Join(t.TempDir(), "done")
	s.Configure([]config.Process{app("i=0; while [ $i -lt 200 ]; do echo line || exit 9; i=$((i+1)); done; head -c 1000000 /dev/zero || exit 8; : >" + done)}, nil)
	if err := s.Once(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(done); err != nil {
		t.Error(err)
	}
}

// TestLocked: a process waits for the end of an earlier one of its name, says so, and Once ends with its context
// meanwhile.
func TestLocked(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := os.MkdirAll(filepath.Join(s.stateDir, "processes"), 0o750); err != nil {
		t.Fatal(err)
	}
	lock, err := durable.TryLock(filepath.Join(s.stateDir, "processes", "app.lock"))
	if err != nil {
		t.Fatal(err)
	}
	s.Configure([]config.Process{app("echo start; sleep 1000 & wait")}, nil)
	s.wantStatus("waiting for the earlier process", func(st supervise.Status) bool {
		return st.State == supervise.StateWaiting && strings.HasPrefix(st.Pending, "an earlier process of this name is ending") && st.Starts == 0
	})
	once := supervise.New(supervise.Options{StateDir: s.stateDir, Log: hclog.NewNullLogger(), Environ: func() []string { return nil }})
	once.Configure([]config.Process{app("exit 0")}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- once.Once(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\n")
	s.wantStatus("nothing pending", func(st supervise.Status) bool { return st.Pending == "" && st.PID > 0 })
}

// TestNoStateDir: a process whose lock cannot be made is started once that is repaired.
func TestNoStateDir(t *testing.T) {
	t.Parallel()
	s := start(t)
	file := filepath.Join(s.stateDir, "processes")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Configure([]config.Process{app("echo start; sleep 1000 & wait")}, nil)
	s.wantStatus("failed", func(st supervise.Status) bool {
		return st.State == supervise.StateFailed && strings.Contains(st.Error, `lock of process "app"`)
	})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\n")
}

// TestOnceEnds: the end of the context stops what runs.
func TestOnceEnds(t *testing.T) {
	t.Parallel()
	var output buffer
	s := supervise.New(supervise.Options{
		StateDir: t.TempDir(), Stdout: &output, Log: hclog.NewNullLogger(), Environ: func() []string { return []string{"PATH=/bin:/usr/bin"} },
	})
	other := app("exit 5")
	other.Name = "other"
	s.Configure([]config.Process{app("echo $$; sleep 1000 & wait"), other}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Once(ctx) }()
	consultest.Eventually(t, "the process", func(context.Context) error {
		if !strings.HasSuffix(output.String(), "\n") {
			return errors.New("it has not started")
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(output.String()))
	if err != nil {
		t.Fatal(err)
	}
	wantGone(t, pid)
}

// TestDamagedVariables: what is not the output of a template of Templates is an error without
// its text, and the process keeps its variables.
func TestDamagedVariables(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := app("echo $A; sleep 1000 & wait")
	p.Env.Prefixes = []config.EnvSource{{Path: "p", Format: "{{ key }}"}}
	p.Env.Secrets = []config.EnvSource{{Path: "s", Format: "{{ key }}"}}
	s.Configure([]config.Process{p}, nil)
	if err := s.replace("process/app", "", line("0", "p", "A", "one")); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("one\n")
	for _, data := range []string{
		"\n", " \n", "0\n", "0 p\n", "0 s\n", "-1 p QQ==\n", "-1 s QQ==\n", "9 p QQ== QQ==\n", "0 x s3cret\n", "s3cret p QQ==\n", "0 p s3cret!\n", "0 p QQ== s3cret!\n",
		"0 s s3cret!\n", line("0", "s", "s3cret"), line("0", "s", `"s3cret"`), line("0", "s", `{"a": s3cret}`), line("0", "s", `["s3cret"]`),
		line("0", "p", "A", "one") + "0 p",
	} {
		err := s.replace("process/app", "", data)
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "czNjcmV0") {
			t.Errorf("%q: got %v, want an error without the text", data, err)
		}
	}
	if err := s.replace("process/gone", "", "anything"); err != nil {
		t.Errorf("a process that was removed: got %v", err)
	}
	if got := s.Status(); got[0].Starts != 1 {
		t.Errorf("got %+v, want one start", got)
	}
}

// TestEnvironment: which variables a process gets.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	inherited := []string{"PATH=/bin:/usr/bin", "KEPT=yes", "VAULT_TOKEN=s3cret", "AWS_SECRET_ACCESS_KEY=s3cret", "OTHER=x"}
	for _, tt := range []struct {
		name string
		env  config.ProcessEnv
		want string
	}{
		{"all but secrets", config.ProcessEnv{}, "KEPT=yes OTHER=x PATH=/bin:/usr/bin"},
		{"pristine", config.ProcessEnv{Pristine: true, Custom: []string{"A=b"}}, "A=b"},
		{"an allowed secret", config.ProcessEnv{Allowlist: []string{"KE*", "VAULT_TOKEN"}}, "KEPT=yes VAULT_TOKEN=s3cret"},
		{"a pattern asks for no secret", config.ProcessEnv{Allowlist: []string{"*"}}, "KEPT=yes OTHER=x PATH=/bin:/usr/bin"},
		{"denylist", config.ProcessEnv{Denylist: []string{"P*", "OTHER"}}, "KEPT=yes"},
		{"denylist over allowlist", config.ProcessEnv{Allowlist: []string{"KEPT", "OTHER"}, Denylist: []string{"KEPT"}}, "OTHER=x"},
		{"custom comes last", config.ProcessEnv{Allowlist: []string{"KEPT"}, Custom: []string{"KEPT=no", "LD_PRELOAD="}}, "KEPT=no LD_PRELOAD="},
	} {
		var output buffer
		s := supervise.New(supervise.Options{StateDir: t.TempDir(), Stdout: &output, Log: hclog.NewNullLogger(), Environ: func() []string { return inherited }})
		p := app("")
		p.Command, p.Env = []string{"/usr/bin/env"}, tt.env
		s.Configure([]config.Process{p}, nil)
		if err := s.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(output.String())
		slices.Sort(got)
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestReload: with a reload signal a changed file reaches the process without a restart; a process that
// does not handle the signal ends and is started again.
func TestReload(t *testing.T) {
	t.Parallel()
	// As the agent does: started with nohup this process, and so each that it starts, ignores SIGHUP.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	s := start(t)
	p := app("trap 'echo reload' HUP; echo start; while :; do sleep 0.01; done")
	p.ReloadSignal = "SIGHUP"
	s.Configure([]config.Process{p}, []config.Template{{Name: "a"}})
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\n")
	pid := s.running()
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\nreload\n")
	if got := s.running(); got != pid {
		t.Errorf("process %d became %d", pid, got)
	}
	p.Command = []string{"/bin/sh", "-c", "echo deaf; sleep 1000 & wait"}
	s.Configure([]config.Process{p}, []config.Template{{Name: "a"}})
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\nreload\ndeaf\n")
	s.running()
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\nreload\ndeaf\ndeaf\n")
}

// TestFailedReplacement: a process does not start on files that could not be replaced.
func TestFailedReplacement(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Configure([]config.Process{app("echo start; sleep 1000 & wait")}, []config.Template{{Name: "a"}})
	if err := s.replaceWith(broken{}, "a", "/a", ""); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want the error of the replacer", err)
	}
	if got := s.Status()[0]; len(got.Waiting) != 1 || got.Starts != 0 {
		t.Errorf("got %+v, want a process that waits", got)
	}
	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start\n")
}

// TestNameReturns: a process that is removed and configured again at once starts after the end of the
// first, and is not forgotten.
func TestNameReturns(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := app("trap 'echo end; exit' TERM; echo start; sleep 1000 & wait")
	s.Configure([]config.Process{p}, nil)
	s.wantOutput("start\n")
	s.running()
	s.Configure(nil, nil)
	s.Configure([]config.Process{p}, nil)
	consultest.Eventually(t, "an end and a start", func(context.Context) error {
		if got := s.output.String(); strings.Count(got, "start\n") != 2 || strings.Count(got, "end\n") != 1 {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	if bytes.Count([]byte(s.output.String()), []byte("\n")) != 3 {
		t.Errorf("got %q", s.output.String())
	}
}
