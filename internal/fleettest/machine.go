//go:build linux

package fleettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Machine is what hosts and servers have in common: a network namespace, an
// address, a directory and programs.
type Machine struct {
	Name string
	IP   string
	Dir  string

	fleet *Fleet
	owner any // *Host or *Server
	space space
	at    space  // the switch
	port  string // there

	mu        sync.Mutex
	processes []*Process
	delay     *delay
}

// machine makes a machine's directory and certificate; its namespace comes
// with the network.
func (f *Fleet) machine(name string, number int) *Machine {
	f.t.Helper()
	m := &Machine{Name: name, IP: fmt.Sprintf("10.111.0.%d", number), Dir: filepath.Join(f.dir, name), fleet: f}
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		f.t.Fatalf("fleettest: %v", err)
	}
	if err := f.tls.issue(m.Dir, m.IP, "server.dc1.consul", "client.dc1.consul"); err != nil {
		f.t.Fatalf("fleettest: certificate of %s: %v", name, err)
	}
	return m
}

// owned is a Host or a Server.
type owned interface{ machine() *Machine }

// Machines are those of hosts or servers.
func Machines[T owned](all []T) []*Machine {
	ms := make([]*Machine, len(all))
	for i, o := range all {
		ms[i] = o.machine()
	}
	return ms
}

func (m *Machine) machine() *Machine { return m }

// process makes a program of the machine, and starts it.
func (m *Machine) process(name string, again bool, env []string, args ...string) (*Process, error) {
	p := &Process{m: m, name: name, args: args, env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.Dir}, env...), again: again}
	m.mu.Lock()
	m.processes = append(m.processes, p)
	m.mu.Unlock()
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (m *Machine) programs() []*Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*Process(nil), m.processes...)
}

// killAll ends everything that runs on the machine, as a power cut would.
func (m *Machine) killAll() {
	for _, p := range m.programs() {
		p.unwanted()
	}
	m.space.killAll()
	for _, p := range m.programs() {
		p.ended()
	}
}

// startAll starts all programs that the machine had.
func (m *Machine) startAll() error {
	for _, p := range m.programs() {
		if err := p.start(); err != nil {
			return fmt.Errorf("start %s on %s: %w", p.name, m.Name, err)
		}
	}
	return nil
}

// showLogs shows the ends of all logs.
func (m *Machine) showLogs(t testing.TB) {
	for _, p := range m.programs() {
		t.Logf("%s: the log of %s ends with:\n%s", m.Name, p.name, p.tail(3000))
	}
}

// Result is how a command ended.
type Result struct {
	Args           []string
	Stdout, Stderr string
	Code           int

	t testing.TB
}

// OK fails the test when the command did, and returns what it printed.
func (r Result) OK() string {
	r.t.Helper()
	if r.Code != 0 {
		r.t.Fatalf("%q exited %d\nstdout: %s\nstderr: %s", r.Args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// commandWithin bounds a command in the foreground.
const commandWithin = 3 * time.Minute

// exec runs a command on the machine to its end.
func (m *Machine) exec(env []string, args ...string) Result {
	m.fleet.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandWithin)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &stdout, &stderr, m.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.Dir}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err := m.space.within(cmd.Run)
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		m.fleet.t.Fatalf("fleettest: %s: %q: %v", m.Name, args, err)
	}
	return Result{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode(), t: m.fleet.t}
}
