package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// programsDir holds what build has built; TestMain removes it.
var (
	building    sync.Once
	programsDir string
	buildErr    error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if programsDir != "" {
		_ = os.RemoveAll(programsDir)
	}
	os.Exit(code)
}

// build builds the demo and jorc, once.
func build(t *testing.T) (demo, jorc string) {
	t.Helper()
	building.Do(func() {
		if programsDir, buildErr = os.MkdirTemp("", "jorc-demo-test-"); buildErr == nil {
			consultest.Build(t, programsDir, "demo", "cmd/jorc")
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return filepath.Join(programsDir, "demo"), filepath.Join(programsDir, "jorc")
}

// output may be written and read at the same time.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// playing is a running demo.
type playing struct {
	cmd  *exec.Cmd
	said output
	tmp  string
}

func play(t *testing.T, jorc, consul string) *playing {
	t.Helper()
	demo, _ := build(t)
	p := &playing{tmp: t.TempDir(), cmd: exec.Command(demo, "-jorc", jorc, "-consul", consul)}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.Env = append(os.Environ(), "TMPDIR="+p.tmp)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// end waits for the demo and checks its exit code, and that nothing is left.
func (p *playing) end(t *testing.T, code int) string {
	t.Helper()
	err := p.cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	said := p.said.String()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d, want %d:\n%s", got, code, said)
	}
	if left, err := os.ReadDir(p.tmp); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if left := p.processes(t); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
	return said
}

// processes returns the processes with the demo's directory in their environment or
// arguments.
func (p *playing) processes(t *testing.T) (found []string) {
	t.Helper()
	for _, kind := range []string{"environ", "cmdline"} {
		files, err := filepath.Glob("/proc/[0-9]*/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err == nil && bytes.Contains(data, []byte(p.tmp)) {
				found = append(found, file)
			}
		}
	}
	return found
}

// TestDemo plays the whole demo.
func TestDemo(t *testing.T) {
	t.Parallel()
	_, jorc := build(t)
	said := play(t, jorc, consultest.Binary(t)).end(t, 0)
	for _, want := range []string{
		`app started [0-9.]+ ms later, and they told it: hello from web-1, hello from web-2, hello from web-3`,
		`server 127\.0\.0\.13:\d+;`,
		`127\.0\.0\.13\tweb\.service\.consul`,
		`services::web::lan:`,
		`kill -9 \d+ `,
		`after [0-9.]+ ms Consul's check has noticed`,
		`the files have followed: upstreams\.conf after [0-9.]+ ms, hosts after [0-9.]+ ms, services\.yaml after [0-9.]+ ms`,
		`(?s)\n  -    server 127\.0\.0\.12:.*\n  -127\.0\.0\.12\tweb.*\n  -  - 127\.0\.0\.12\n.*\n  \+    server 127\.0\.0\.12:.*\n  \+127\.0\.0\.12\tweb.*\n  \+  - 127\.0\.0\.12\n`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("not said: %s", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// TestFailures: a step that does not happen is named, and all is cleaned up.
func TestFailures(t *testing.T) {
	t.Parallel()
	_, jorc := build(t)
	without := func(command, text string) string {
		path := filepath.Join(t.TempDir(), "jorc")
		script := "#!/bin/sh\ncase $1 in " + command + ") " + text + ";; esac\nexec " + jorc + ` "$@"` + "\n"
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	consul := consultest.Binary(t)
	for _, test := range []struct {
		name, jorc, consul string
		want               []string
	}{
		{"Consul", jorc, "/bin/false", []string{"FAILED: A Consul and a jorc agent start", "exit status 1"}},
		{"no Consul", jorc, "/nonexistent", []string{"make consul"}},
		{"no jorc", "/nonexistent", consul, []string{"FAILED: A Consul and a jorc agent start", "/nonexistent"}},
		{"register", without("service", "echo no luck >&2; exit 4"), consul, []string{"FAILED: Three web services start", "exit status 4: no luck"}},
		{"wait", without("wait", "echo no patience >&2; exit 124"), consul, []string{"FAILED: Three web services start", "exit status 124: no patience"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			said := play(t, test.jorc, test.consul).end(t, 1)
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("got %s\nwant %s", said, want)
				}
			}
		})
	}
}

// TestInterrupted: after Ctrl-C nothing is left; after kill -9 no process is.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	_, jorc := build(t)
	reaches := func(p *playing, what string) {
		consultest.Eventually(t, what, func(context.Context) error {
			if said := p.said.String(); !strings.Contains(said, what) {
				return errors.New(said)
			}
			return nil
		})
	}
	p := play(t, jorc, consultest.Binary(t))
	reaches(p, "service register web-3.json")
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if said := p.end(t, 1); !strings.Contains(said, "interrupted: ") {
		t.Errorf("got %s", said)
	}

	p = play(t, jorc, consultest.Binary(t))
	reaches(p, "service register web-3.json")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
	consultest.Eventually(t, "the other processes to end", func(context.Context) error {
		if left := p.processes(t); len(left) > 0 {
			return fmt.Errorf("still running: %q", left)
		}
		return nil
	})
}
