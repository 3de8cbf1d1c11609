package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/jorc/jorc/internal/web"
)

// process is a running program.
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
	if len(m.wrap) > 0 {
		path, err := exec.LookPath(m.wrap[0])
		if err != nil {
			m.t.Fatal(err)
		}
		d.cmd.Path, d.cmd.Args = path, append(slices.Clone(m.wrap), d.cmd.Args...)
	}
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

// listen collects the notifications to systemd.
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
