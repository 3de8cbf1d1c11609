package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
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
		cmd.Stdout = lossy(c.Stdout)
		if cmd.Stderr = cmd.Stdout; !same(c.Stdout, c.Stderr) {
			cmd.Stderr = lossy(c.Stderr)
		}
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

// lossy returns a writer that a program does not notice when it fails: os/exec would close
// the program's pipe. Files are the program's own.
func lossy(w io.Writer) io.Writer {
	if _, isFile := w.(*os.File); w == nil || isFile {
		return w
	}
	return &sinks{w}
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

// build prepares c, without its output. The caller closes the command's extra
// files once it has started, and the file, if it is not nil, when it has ended.
func build(c Command) (*exec.Cmd, *os.File, error) {
	if err := checkDir(c.Dir); err != nil {
		return nil, nil, err
	}
	attributes, home, err := attributesOf(c.User)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	// Not CommandContext: ctx must end the group, not only the process.
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	if c.Env == nil {
		cmd.Env = append(Environ(), home...)
	}
	cmd.SysProcAttr = attributes
	if len(c.Guard) == 0 {
		return cmd, nil, nil
	}
	held, err := addGuard(cmd, c.Guard)
	if err != nil {
		return nil, nil, startError(c.Args[0], err)
	}
	return cmd, held, nil
}

// GuardedProcess is the guard of a Process. args begin with the number of the
// signal that asks the program to end, and the time that it has afterwards. The
// guard passes on the signals that it receives, reaps the orphans among the
// program's descendants, and holds the lock of the process, if there is one, until
// it ends itself. Call it in the process's main goroutine.
func GuardedProcess(args []string, signals <-chan os.Signal, stdout, stderr *os.File) (code int) {
	if len(args) < 4 || !isGuard() {
		fmt.Fprintln(stderr, "jorc: only jorc itself can start a guard")
		return ExitCannotRun
	}
	number, err1 := strconv.Atoi(args[0])
	timeout, err2 := time.ParseDuration(args[1])
	// Orphans become children of the guard, which reaps them also where process 1 does not.
	err3 := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		fmt.Fprintln(stderr, "jorc: guard:", err)
		return ExitCannotRun
	}
	unix.CloseOnExec(guardFD)
	unix.CloseOnExec(lockFD)
	runtime.LockOSThread()
	cmd, err := startGuarded(args[2:], stdout, stderr)
	if err != nil {
		return startFailure(err, stderr)
	}
	go func() {
		for s := range signals {
			switch s {
			case syscall.SIGCHLD, syscall.SIGPIPE, syscall.SIGURG: // about the guard itself
			default:
				_ = cmd.Process.Signal(s) // the program may have ended
			}
		}
	}()
	go func() {
		if n, err := os.NewFile(guardFD, "parent").Read(make([]byte, 1)); n > 0 || err == nil {
			return // cannot happen: jorc never writes to the pipe
		}
		_ = cmd.Process.Signal(syscall.Signal(number))
		_ = cmd.Process.Signal(syscall.SIGCONT) // a stopped process handles the signal only then
		time.Sleep(timeout)
		_ = syscall.Kill(-syscall.Getpgrp(), syscall.SIGKILL) // the guard, too
	}()
	code = reap(cmd.Process.Pid)
	endDescendants()
	if abandoned(guardFD) {
		_ = syscall.Kill(-syscall.Getpgrp(), syscall.SIGKILL)
	}
	return code
}

// reap reaps children until the one with number pid has ended, and returns its exit
// code.
func reap(pid int) int {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return ExitCannotRun // cannot happen: pid is a child that was not reaped
		case ended == pid && status.Signaled():
			return exitSignalBase + int(status.Signal())
		case ended == pid:
			return status.ExitStatus()
		}
	}
}

// endDescendants kills and reaps what the program leaves behind, also outside its
// process group: orphans become children of the guard.
func endDescendants() {
	began := time.Now()
	for time.Since(began) < defaultGrace {
		left, err := children()
		if err != nil || len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		for {
			ended, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return // no child is left
			}
			if err == nil && ended == 0 {
				break
			}
		}
		time.Sleep(busyPause)
	}
}

// children returns the children of this process.
func children() ([]int, error) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	var all []int
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all, nil
}
