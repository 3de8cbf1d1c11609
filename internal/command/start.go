package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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
	for try := 1; ; try++ {
		cmd, held, err := build(c)
		if err != nil {
			return nil, nil, nil, err
		}
		out, err := newOutput(c, tail)
		if err == nil {
			cmd.Stdout, cmd.Stderr = out.stdout, out.stderr
			err = cmd.Start()
		}
		for _, f := range cmd.ExtraFiles {
			_ = f.Close()
		}
		if out != nil {
			out.started()
		}
		if err == nil {
			return cmd, out, held, nil
		}
		if held != nil {
			_ = held.Close()
		}
		if out == nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", c.Args[0], err)
		}
		out.drain(0)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries || concurrency.Sleep(ctx, busyPause*time.Duration(try)) != nil {
			return nil, nil, nil, startError(c.Args[0], err)
		}
	}
}

// build prepares c, without its output. The caller closes the command's extra
// files once it has started, and the file, if it is not nil, when it has ended.
func build(c Command) (*exec.Cmd, *os.File, error) {
	if err := checkDir(c.Dir); err != nil {
		return nil, nil, err
	}
	cred, home, err := credential(c.User)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	// Not CommandContext: ctx must end the group, not only the process.
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	if c.Env == nil {
		cmd.Env = append(Environ(), home...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: cred}
	if len(c.Guard) == 0 {
		return cmd, nil, nil
	}
	held, err := addGuard(cmd, c.Guard)
	if err != nil {
		return nil, nil, startError(c.Args[0], err)
	}
	return cmd, held, nil
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
