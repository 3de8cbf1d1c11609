package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/concurrency"
)

// Errors of a command that cannot be started; compare with errors.Is.
var (
	ErrNotFound   = errors.New("command not found")     // exit code 127
	ErrPermission = errors.New("command cannot be run") // exit code 126
)

// busyTries limits the attempts to start a program that another process has open
// for writing. The n-th pause between them is n times busyPause.
const (
	busyTries = 8
	busyPause = 5 * time.Millisecond
)

// start starts c in its own process group. The caller must keep the file, if it
// is not nil, open until the command has ended.
func start(ctx context.Context, c Command, tail *tail) (*exec.Cmd, *output, *os.File, error) {
	if err := checkDir(c.Dir); err != nil {
		return nil, nil, nil, err
	}
	env := c.Env
	if env == nil {
		env = Environ()
	}
	cred, home, err := credential(c.User)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	if c.Env == nil {
		env = append(env, home...)
	}
	for try := 1; ; try++ {
		out, err := newOutput(c, tail)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", c.Args[0], err)
		}
		// Not CommandContext: ctx must end the group, not only the process.
		cmd := exec.Command(c.Args[0], c.Args[1:]...)
		cmd.Dir = c.Dir
		cmd.Env = env
		cmd.Stdout, cmd.Stderr = out.stdout, out.stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: cred}
		var held *os.File
		if len(c.Guard) > 0 {
			held, err = addGuard(cmd, c.Guard)
		}
		if err == nil {
			err = cmd.Start()
		}
		for _, f := range cmd.ExtraFiles {
			_ = f.Close()
		}
		out.started()
		if err == nil {
			return cmd, out, held, nil
		}
		if held != nil {
			_ = held.Close()
		}
		out.drain(0)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries || concurrency.Sleep(ctx, busyPause*time.Duration(try)) != nil {
			return nil, nil, nil, startError(c.Args[0], err)
		}
	}
}

// checkDir returns an error for a missing directory, which the kernel reports
// like a missing program.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("working directory: %w: %w", ErrPermission, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("working directory %s: %w: not a directory", dir, ErrPermission)
	}
	return nil
}

func startError(name string, err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, exec.ErrDot), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: permission denied", name, ErrPermission)
	default:
		return fmt.Errorf("%s: %w: %w", name, ErrPermission, err)
	}
}

// ending describes the end of a process.
type ending struct {
	done   chan struct{} // closed when the process has ended
	killed bool          // by a signal
}

// exit waits for the end of the process without reaping it: its number, and its
// group's, are not reused until it is reaped.
func exit(pid int) *ending {
	e := &ending{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		const exited = 1 // CLD_EXITED
		var info unix.Siginfo
		for {
			err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				e.killed = err == nil && info.Code != exited
				return
			}
		}
	}()
	return e
}

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return exitSignalBase + int(ws.Signal())
	}
	return s.ExitCode()
}

// A command that must not outlive jorc is started by a guard: a process that
// leads the command's process group and ends the group when jorc has ended for
// any reason. The guard reads from a pipe whose other end only jorc has; the pipe
// closes when jorc ends. If the guard itself is killed, jorc ends the group, and
// the kernel ends the command.

// guardFD is the guard's end of the pipe.
const guardFD = 3

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
	var stat unix.Stat_t
	if err := unix.Fstat(guardFD, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO || len(args) < 2 {
		fmt.Fprintln(stderr, "jorc: only jorc itself can start a guard")
		return ExitCannotRun
	}
	unix.CloseOnExec(guardFD)
	parent := os.NewFile(guardFD, "parent")
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
