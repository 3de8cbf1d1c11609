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

// A command that must not outlive jorc has a guard between jorc and itself: a
// process that leads the command's group, and that ends the group when jorc is
// gone, however that came. It knows by a pipe whose other end only jorc has.
// When the guard itself is killed jorc ends the group, and the kernel the
// command.

// leashFD is the guard's end of the pipe.
const leashFD = 3

// leash makes cmd one that a guard starts. The returned file is to be kept open for as long as the command may run.
func leash(cmd *exec.Cmd, guard []string) (*os.File, error) {
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

// Guarded is the guard: it runs args, a path and the command's own arguments,
// the program's name included, and returns the exit code that the command had:
// 128+n when signal n ended it. The command writes to stdout and stderr. It must be called in the process's main
// goroutine, with signals to end caught: they are for the command.
func Guarded(args []string, stdout, stderr *os.File) (code int) {
	var leashed unix.Stat_t
	if err := unix.Fstat(leashFD, &leashed); err != nil || leashed.Mode&unix.S_IFMT != unix.S_IFIFO || len(args) < 2 {
		fmt.Fprintln(stderr, "jorc: a guard is only of use to jorc itself")
		return ExitCannotRun
	}
	unix.CloseOnExec(leashFD)
	leash := os.NewFile(leashFD, "leash")
	// The kernel ends the command with the thread that started it.
	runtime.LockOSThread()
	cmd, err := startGuarded(args, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "jorc:", err)
		if errors.Is(err, ErrNotFound) {
			return ExitNotFound
		}
		return ExitCannotRun
	}
	go func() {
		if n, err := leash.Read(make([]byte, 1)); n > 0 || err == nil {
			return // nobody writes there
		}
		group := syscall.Getpgrp()
		_ = syscall.Kill(-group, syscall.SIGTERM)
		_ = syscall.Kill(-group, syscall.SIGCONT)
		time.Sleep(defaultGrace)
		_ = syscall.Kill(-group, syscall.SIGKILL) // the guard, too
	}()
	_ = cmd.Wait() // the state says it all
	if abandoned(leashFD) {
		time.Sleep(2 * defaultGrace) // what is left of the group is ended, this process with it
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

// abandoned tells whether nobody has the other end of a pipe any more.
func abandoned(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}
