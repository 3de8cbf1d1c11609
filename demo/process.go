package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is a started program. It ends with the demo, even if the demo is killed.
type process struct {
	name string
	cmd  *exec.Cmd
	said bytes.Buffer  // stderr, unless it goes elsewhere; to be read when done
	done chan struct{} // closed when it has ended
}

// start starts a program in its own process group, so that only the demo receives
// Ctrl-C. farewell is the signal that the program gets when the demo dies.
func start(name string, env []string, out, errOut io.Writer, farewell syscall.Signal, args ...string) (*process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: farewell}
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, errOut
	if errOut == nil {
		cmd.Stderr = &p.said
	}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The signal comes when the thread ends that started the process, so the
		// thread stays.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState has the result
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// stop ends the process with SIGTERM and returns its result.
func (p *process) stop(within time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
		return fmt.Errorf("%s had to be killed: it did not end within %v", p.name, within)
	}
	if !p.cmd.ProcessState.Success() {
		return p.ended()
	}
	return nil
}

// silent is the error of a process that did not say where it listens: mostly
// because it has ended.
func (p *process) silent(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) {
		select {
		case <-p.done:
			return p.ended()
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%s did not say where it listens: %w", p.name, err)
}

func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ended is the error of a process that should not have.
func (p *process) ended() error {
	text := strings.Join(strings.Fields(p.said.String()), " ")
	if text != "" {
		text = ": " + text
	}
	return fmt.Errorf("%s ended with %v%s", p.name, p.cmd.ProcessState, text)
}

// tail is the end of a file, for an error.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
