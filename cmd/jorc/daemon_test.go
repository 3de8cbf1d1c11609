package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/web"
)

// machine is where the built program runs: a directory, a Consul and an
// environment.
type machine struct {
	t      *testing.T
	server *consultest.Server
	client *consul.Client
	dir    string
	env    []string
}

func newMachine(t *testing.T, s *consultest.Server, conf string) *machine {
	t.Helper()
	m := &machine{t: t, server: s, client: s.Client(), dir: t.TempDir()}
	m.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir, "TMPDIR=" + m.dir,
		"CONSUL_HTTP_ADDR=" + s.HTTPAddr, "JORC_DNS_ADDR=" + s.DNSAddr, "JORC_STATE_DIR=" + m.path("state"),
	}
	m.configure(conf)
	return m
}

// configure writes the configuration; DIR in it is the machine's directory.
func (m *machine) configure(conf string) {
	m.t.Helper()
	m.write("jorc.hcl", strings.ReplaceAll(conf, "DIR", m.dir))
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.path(name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *machine) wantFile(name, text string) {
	m.t.Helper()
	m.eventually(name, func() error {
		if got := m.read(name); got != text {
			return fmt.Errorf("got %q, want %q", got, text)
		}
		return nil
	})
}

func (m *machine) eventually(what string, check func() error) {
	m.t.Helper()
	consultest.Eventually(m.t, what, func(context.Context) error { return check() })
}

func (m *machine) put(key, value string) {
	m.t.Helper()
	if err := m.client.KVPut(m.t.Context(), &consul.KVPair{Key: key, Value: []byte(value)}); err != nil {
		m.t.Fatal(err)
	}
}

// services are the ids of what is registered at the agent, with maintenance
// where it is on.
func (m *machine) wantServices(want string) {
	m.t.Helper()
	m.eventually("services "+want, func() error {
		have, err := m.client.AgentServices(m.t.Context(), "")
		if err != nil {
			return err
		}
		checks, err := m.client.AgentChecks(m.t.Context(), "")
		if err != nil {
			return err
		}
		for _, word := range strings.Fields(want) {
			id, maintenance := strings.CutSuffix(word, "!")
			if _, on := checks["_service_maintenance:"+id]; have[id] == nil || on != maintenance {
				return fmt.Errorf("%s is not as wanted: %v, maintenance %v", id, have[id], on)
			}
		}
		if len(have) != len(strings.Fields(want)) {
			return fmt.Errorf("got %v", have)
		}
		return nil
	})
}

// command is the built program with the machine's environment.
func (m *machine) command(args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := exec.Command(builtOnce(m.t), args...)
	cmd.Env, cmd.Dir = m.env, m.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs the program to its end.
func (m *machine) run(args ...string) result {
	m.t.Helper()
	cmd := m.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		m.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// process is a program under way.
type process struct {
	m        *machine
	cmd      *exec.Cmd
	said     output // stdout and stderr
	notified output // what systemd was told
	ended    chan struct{}
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

// start starts a daemon with a systemd that listens to it.
func (m *machine) start(args ...string) *process {
	m.t.Helper()
	d := &process{m: m, ended: make(chan struct{})}
	d.cmd = m.command(args...)
	d.cmd.Stdout, d.cmd.Stderr = &d.said, &d.said
	d.cmd.Env = append(d.cmd.Env, "NOTIFY_SOCKET="+d.listen())
	if err := d.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // the state says how it ended
		close(d.ended)
	}()
	m.t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.ended
		if m.t.Failed() {
			m.t.Logf("%q said:\n%s", args, &d.said)
		}
	})
	return d
}

// agent starts `jorc agent`.
func (m *machine) agent(args ...string) *process {
	m.t.Helper()
	return m.start(append([]string{"agent", "--config", m.path("jorc.hcl")}, args...)...)
}

// listen takes in what systemd is told.
func (d *process) listen() string {
	dir, err := os.MkdirTemp("", "jorc-notify-") // short: such names are bounded
	if err != nil {
		d.m.t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		d.m.t.Fatal(err)
	}
	d.m.t.Cleanup(func() { _ = conn.Close(); _ = os.RemoveAll(dir) })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			fmt.Fprintf(&d.notified, "%s\n", buf[:n])
		}
	}()
	return path
}

func (d *process) wantSaid(text string) {
	d.m.t.Helper()
	d.m.eventually("the output to contain "+text, func() error { return lacks(d.said.String(), text) })
}

func (d *process) wantNotified(text string) {
	d.m.t.Helper()
	d.m.eventually("systemd to be told "+text, func() error { return lacks(d.notified.String(), text) })
}

func lacks(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q does not contain %q", text, part)
	}
	return nil
}

func (d *process) signal(s syscall.Signal) {
	d.m.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.m.t.Fatal(err)
	}
}

// wantExit waits for the program's end.
func (d *process) wantExit(code int) {
	d.m.t.Helper()
	d.m.eventually("the end of the program", func() error {
		select {
		case <-d.ended:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.m.t.Errorf("exit code %d (%v), want %d", got, d.cmd.ProcessState, code)
	}
}

// get asks the daemon's status API.
func (d *process) get(path string) string {
	d.m.t.Helper()
	const before = "the status API listens: address="
	d.wantSaid(before)
	_, rest, _ := strings.Cut(d.said.String(), before)
	address, _, _ := strings.Cut(rest, "\n")
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		d.m.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		d.m.t.Fatal(err)
	}
	return string(body)
}

func (d *process) status() (s web.Status) {
	d.m.t.Helper()
	if err := json.Unmarshal([]byte(d.get("/v1/status")), &s); err != nil {
		d.m.t.Fatal(err)
	}
	return s
}
