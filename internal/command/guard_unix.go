//go:build unix

package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
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
		cmd.SysProcAttr = endWithThread(&syscall.SysProcAttr{})
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
