package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/concurrency"
)

// Process is a program that runs until it ends by itself or is stopped. Signals go
// to the program alone; when it has ended, the rest of its process group is killed.
type Process struct {
	c    Command
	cmd  *exec.Cmd
	held *os.File // the guard's pipe
	done chan struct{}

	mu     sync.Mutex
	reaped bool
	result Result
}

// Start starts c, of which Timeout, MaxOutput and Redact are not used. Its output
// goes to c.Stdout and c.Stderr, directly if they are files. c.Guard is a program
// that calls GuardedProcess: if jorc ends for any reason, the program gets
// c.StopSignal and, after c.Grace, SIGKILL; the guard keeps c.Lock open until then.
//
// Errors wrap ErrNotFound or ErrPermission.
func Start(ctx context.Context, c Command) (*Process, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return nil, fmt.Errorf("empty command: %w", ErrNotFound)
	}
	if filepath.IsAbs(c.Args[0]) { // a guard could not report it
		if _, err := exec.LookPath(c.Args[0]); err != nil {
			return nil, startError(c.Args[0], err)
		}
	}
	if c.StopSignal == 0 {
		c.StopSignal = syscall.SIGTERM
	}
	if c.Grace <= 0 {
		c.Grace = defaultGrace
	}
	if len(c.Guard) > 0 {
		c.Guard = append(append([]string{}, c.Guard...), strconv.Itoa(int(c.StopSignal)), c.Grace.String())
	}
	for try := 1; ; try++ {
		cmd, held, err := build(c)
		if err != nil {
			return nil, err
		}
		cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
		cmd.WaitDelay = drainTime
		if c.Lock != nil && len(c.Guard) > 0 {
			cmd.ExtraFiles = append(cmd.ExtraFiles, c.Lock)
		}
		err = cmd.Start()
		if held != nil {
			_ = cmd.ExtraFiles[0].Close()
		}
		if err == nil {
			p := &Process{c: c, cmd: cmd, held: held, done: make(chan struct{})}
			go p.wait(time.Now())
			return p, nil
		}
		if held != nil {
			_ = held.Close()
		}
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries || concurrency.Sleep(ctx, busyPause*time.Duration(try)) != nil {
			return nil, startError(c.Args[0], err)
		}
	}
}

// wait reaps the program and kills the rest of its group.
func (p *Process) wait(began time.Time) {
	defer close(p.done)
	pid := p.cmd.Process.Pid
	<-exit(pid).done
	p.mu.Lock()
	// The group's number may be reused once its leader is reaped.
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	p.reaped = true
	_ = p.cmd.Wait() // ProcessState has the result
	p.result = Result{ExitCode: exitCode(p.cmd.ProcessState), Took: time.Since(began)}
	p.mu.Unlock()
	if p.held != nil {
		_ = p.held.Close()
	}
}

// Pid returns the number of the program's process group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Result returns how the program ended. Call it when Done is closed.
func (p *Process) Result() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// Signal sends a signal to the program, unless it has ended.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	return syscall.Kill(p.Pid(), s)
}

// Stop sends the stop signal to the program and, after the grace period, SIGKILL to
// its group. It returns when the program has ended.
func (p *Process) Stop() {
	_ = p.Signal(p.c.StopSignal)
	_ = p.Signal(syscall.SIGCONT) // a stopped process handles the signal only then
	t := time.NewTimer(p.c.Grace)
	defer t.Stop()
	select {
	case <-p.done:
		return
	case <-t.C:
	}
	p.mu.Lock()
	if !p.reaped {
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	}
	p.mu.Unlock()
	<-p.done
}
