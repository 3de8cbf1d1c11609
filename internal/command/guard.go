package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A command that must not outlive jorc is started by a guard: a process that
// leads the command's process group and ends the group when jorc has ended for
// any reason. The guard reads from a pipe whose other end only jorc has; the pipe
// closes when jorc ends. If the guard itself is killed, jorc ends the group, and
// the kernel ends the command.

// guardFD is the guard's end of the pipe, lockFD the lock of a Process.
const (
	guardFD = 3
	lockFD  = 4
)

// addGuard makes cmd start a guard that starts the command. The caller must keep
// the returned file open until the command has ended.
func addGuard(cmd *exec.Cmd, guard []string) (*os.File, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	args := append(append([]string{}, guard...), cmd.Path)
	cmd.Path, cmd.Args, cmd.ExtraFiles = guard[0], append(args, cmd.Args...), []*os.File{r}
	return w, nil
}

// Guarded is the guard: it runs args, a path followed by the command's own
// arguments with the program's name, and returns the command's exit code: 128+n
// when signal n ended it. The command writes to stdout and stderr. Call it in the
// process's main goroutine, with SIGTERM and SIGINT caught: they are for the
// command.
func Guarded(args []string, stdout, stderr *os.File) (code int) {
	if len(args) < 2 || !isGuard() {
		fmt.Fprintln(stderr, "jorc: only jorc itself can start a guard")
		return ExitCannotRun
	}
	unix.CloseOnExec(guardFD)
	parent := os.NewFile(guardFD, "parent")
	// The kernel ends the command with the thread that started it.
	runtime.LockOSThread()
	cmd, err := startGuarded(args, stdout, stderr)
	if err != nil {
		return startFailure(err, stderr)
	}
	go func() {
		if n, err := parent.Read(make([]byte, 1)); n > 0 || err == nil {
			return // cannot happen: jorc never writes to the pipe
		}
		group := syscall.Getpgrp()
		_ = syscall.Kill(-group, syscall.SIGTERM)
		_ = syscall.Kill(-group, syscall.SIGCONT)
		time.Sleep(defaultGrace)
		_ = syscall.Kill(-group, syscall.SIGKILL) // the guard, too
	}()
	_ = cmd.Wait() // ProcessState has the result
	if abandoned(guardFD) {
		time.Sleep(2 * defaultGrace) // until the goroutine above ends the group with this process
	}
	return exitCode(cmd.ProcessState)
}

func startGuarded(args []string, stdout, stderr *os.File) (*exec.Cmd, error) {
	for try := 1; ; try++ {
		cmd := &exec.Cmd{Path: args[0], Args: args[1:], Stdout: stdout, Stderr: stderr}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		if err == nil {
			return cmd, nil
		}
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return nil, startError(args[1], err)
		}
		time.Sleep(busyPause * time.Duration(try))
	}
}

// abandoned reports whether the other end of a pipe is closed.
func abandoned(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
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

// isGuard reports whether jorc started this process as a guard.
func isGuard() bool {
	var stat unix.Stat_t
	return unix.Fstat(guardFD, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO
}

// startFailure reports why a guard could not start its program.
func startFailure(err error, stderr *os.File) (code int) {
	fmt.Fprintln(stderr, "jorc:", err)
	if errors.Is(err, ErrNotFound) {
		return ExitNotFound
	}
	return ExitCannotRun
}
