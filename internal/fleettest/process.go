//go:build linux

package fleettest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// Process is a program that runs in the background on a machine, in a process
// group of its own, with a log in the machine's directory.
type Process struct {
	m    *Machine
	name string
	args []string
	env  []string
	// again: it is started again when it ends, as systemd would.
	again bool

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool          // it must not be started again
	done    chan struct{} // closed when it has ended and is not started again
}

// start begins to run the program.
func (p *Process) start() error {
	p.mu.Lock()
	p.stopped, p.done = false, make(chan struct{})
	done := p.done
	p.mu.Unlock()
	started := make(chan error, 1)
	go p.keep(done, started)
	return <-started
}

// keep runs the program until it ends for good.
func (p *Process) keep(done chan struct{}, started chan<- error) {
	defer close(done)
	for {
		cmd, err := p.runOnce(started)
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped || err != nil {
			return
		}
		if !p.again {
			p.m.fleet.failed(fmt.Errorf("%s on %s ended by itself: %v; its log ends with:\n%s", p.name, p.m.Name, cmd.ProcessState, p.tail(2000)))
			return
		}
		started = make(chan error, 1)
	}
}

// runOnce runs the program once, from a thread that is in the machine's
// namespace and lives as long, so that all programs end with a killed test binary.
func (p *Process) runOnce(started chan<- error) (*exec.Cmd, error) {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		started <- err
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, p.m.Dir, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: see space.within
		err := p.m.space.enter()
		if err == nil {
			err = p.begin(cmd)
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
		}
		ended <- err
	}()
	return cmd, <-ended
}

var errUnwanted = errors.New("the program must not be started again")

func (p *Process) begin(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errUnwanted
	}
	p.cmd = cmd
	return cmd.Start()
}

// signal sends a signal to the program, if it runs.
func (p *Process) signal(s os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil {
		return errors.New("it does not run")
	}
	return p.cmd.Process.Signal(s)
}

// unwanted prevents further starts of the program; it does not end it.
func (p *Process) unwanted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// ended returns when the program has ended for good.
func (p *Process) ended() {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (p *Process) logFile() string { return filepath.Join(p.m.Dir, p.name+".log") }

// tail is the end of the program's log.
func (p *Process) tail(most int) []byte {
	data, err := os.ReadFile(p.logFile())
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-most):])
}
