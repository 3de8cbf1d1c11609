package supervise_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/replace"
	"github.com/jorc/jorc/internal/supervise"
)

// buffer may be written and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// changed is a replacer for which each file of a unit has changed.
type changed struct{}

func (changed) Replace(_ context.Context, u replace.Unit) (out replace.Outcome, _ error) {
	for _, f := range u.Files {
		out.Changed = append(out.Changed, f.Destination)
	}
	return out, nil
}

// broken is a replacer whose disk is full after the file has changed.
type broken struct{}

func (broken) Replace(ctx context.Context, u replace.Unit) (replace.Outcome, error) {
	out, _ := changed{}.Replace(ctx, u)
	return out, syscall.ENOSPC
}

// supervised runs a Supervisor until the test ends.
type supervised struct {
	*supervise.Supervisor
	t        *testing.T
	stateDir string
	output   *buffer
	slots    chan struct{} // what Slot waits for
}

func start(t *testing.T) *supervised {
	t.Helper()
	s := &supervised{t: t, stateDir: t.TempDir(), output: &buffer{}, slots: make(chan struct{})}
	s.run(supervise.Options{
		StateDir: s.stateDir, Stdout: s.output, Stderr: s.output, Log: hclog.NewNullLogger(),
		Environ: func() []string { return []string{"PATH=/bin:/usr/bin", "CONSUL_HTTP_TOKEN=inherited", "KEPT=yes"} },
		Slot: func(ctx context.Context, _ string, _ int, _ string) (func(), error) {
			select {
			case s.slots <- struct{}{}:
				return func() {}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	return s
}

// run runs a Supervisor with these options until the test ends.
func (s *supervised) run(o supervise.Options) {
	s.Supervisor = supervise.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *supervised) replace(name, destination, data string) error {
	return s.replaceWith(changed{}, name, destination, data)
}

func (s *supervised) replaceWith(next supervise.Replacer, name, destination, data string) error {
	f := replace.File{Name: name, Destination: destination, Data: []byte(data)}
	_, err := s.Replacer(next).Replace(s.t.Context(), replace.Unit{Name: name, Files: []replace.File{f}})
	return err
}

func (s *supervised) wantOutput(want string) {
	s.t.Helper()
	consultest.Eventually(s.t, "the output "+want, func(context.Context) error {
		if got := s.output.String(); got != want {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

func (s *supervised) wantStatus(what string, ok func(supervise.Status) bool) {
	s.t.Helper()
	consultest.Eventually(s.t, what, func(context.Context) error {
		if all := s.Status(); len(all) != 1 || !ok(all[0]) {
			return fmt.Errorf("got %+v", all)
		}
		return nil
	})
}

func app(script string) config.Process {
	return config.Process{
		Name: "app", Command: []string{"/bin/sh", "-c", script}, KillSignal: "SIGTERM", KillTimeout: 10 * time.Second, MinHealthyTime: time.Millisecond,
	}
}

func line(fields ...string) string {
	for i := 2; i < len(fields); i++ {
		fields[i] = base64.StdEncoding.EncodeToString([]byte(fields[i]))
	}
	return strings.Join(fields, " ") + "\n"
}

// TestSupervisor: a process starts when its files and variables are there, and restarts
// when they change; a restart waits for its slot.
func TestSupervisor(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := app("trap 'echo end; exit' TERM; echo start $NAME $KEPT $CONSUL_HTTP_TOKEN; sleep 1000 & wait")
	p.Slot, p.Env.Prefixes = "g", []config.EnvSource{{Path: "p", Format: "{{ key }}"}}
	p.Env.Secrets = []config.EnvSource{{Path: "s", Format: "s_{{ key }}"}}
	s.Configure([]config.Process{p}, []config.Template{{Name: "a"}, {Name: "b"}})
	s.wantStatus("waiting for three", func(st supervise.Status) bool { return len(st.Waiting) == 3 && st.State == supervise.StateWaiting })
	for _, name := range []string{"a", "b"} {
		if err := s.replace(name, "/"+name, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.replace("process/app", "", line("0", "p", "NAME", "one")+line("0", "s", `{"x": 1}`)); err != nil {
		t.Fatal(err)
	}
	s.wantOutput("start one yes\n")
	s.wantStatus("running", func(st supervise.Status) bool { return st.State == supervise.StateRunning && st.PID > 0 })

	if err := s.replace("a", "/a", ""); err != nil {
		t.Fatal(err)
	}
	s.wantStatus("waiting for its slot", func(st supervise.Status) bool { return st.Pending == `a slot of "g"` })
	s.wantOutput("start one yes\n")
	<-s.slots
	s.wantOutput("start one yes\nend\nstart one yes\n")

	for data, want := range map[string]string{
		line("0", "p", "LD_PRELOAD", "s3cret"):         "LD_PRELOAD can be set in env { custom } only",
		line("0", "p", "A=B", "s3cret"):                "cannot be the name of a variable",
		line("0", "p", "A", "s3\x00cret"):              "zero byte",
		line("1", "p", "A", "s3cret"):                  "another configuration",
		line("0", "s", `{"PATH": "s3cret"}`) + "x y\n": "cannot be read",
	} {
		if err := s.replace("process/app", "", data); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, want %q", data, err, want)
		}
	}
	s.Configure(nil, nil)
	s.wantOutput("start one yes\nend\nstart one yes\nend\n")
}

// TestSupervisorOnce: the error has the exit code, and ctx's end stops the process.
func TestSupervisorOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		script string
		code   int
	}{{"exit 0", 0}, {"exit 7", 7}, {"kill -9 $$", 137}} {
		s := supervise.New(supervise.Options{StateDir: t.TempDir(), Log: hclog.NewNullLogger(), Environ: func() []string { return nil }})
		s.Configure([]config.Process{app(tt.script)}, nil)
		err := s.Once(t.Context())
		var ended *supervise.ExitError
		if errors.As(err, &ended) && ended.Code != tt.code || (err == nil) != (tt.code == 0) {
			t.Errorf("%s: got %v, want exit code %d", tt.script, err, tt.code)
		}
	}
	s := supervise.New(supervise.Options{StateDir: t.TempDir(), Log: hclog.NewNullLogger(), Environ: func() []string { return nil }})
	s.Configure([]config.Process{app("exit 0")}, []config.Template{{Name: "missing"}})
	if err := s.Once(t.Context()); err == nil || !strings.Contains(err.Error(), `template "missing"`) {
		t.Errorf("got %v, want what is missing", err)
	}
}
