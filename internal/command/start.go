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

// running is a command that was started.
type running struct {
	*group
	cmd *exec.Cmd
	out *output
}

// start starts c in its own group. The caller closes the group when the command
// has ended.
func start(ctx context.Context, c Command, tail *tail) (*running, error) {
	if err := checkDir(c.Dir); err != nil {
		return nil, err
	}
	env := c.Env
	if env == nil {
		env = Environ()
	}
	attributes, home, err := attributesOf(c.User)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	if c.Env == nil {
		env = append(env, home...)
	}
	for try := 1; ; try++ {
		out, err := newOutput(c, tail)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Args[0], err)
		}
		// Not CommandContext: ctx must end the group, not only the process.
		cmd := exec.Command(c.Args[0], c.Args[1:]...)
		cmd.Dir = c.Dir
		cmd.Env = env
		cmd.Stdout, cmd.Stderr = out.stdout, out.stderr
		cmd.SysProcAttr = attributes
		g, err := startGroup(cmd, c.Guard)
		out.started()
		if err == nil {
			return &running{g, cmd, out}, nil
		}
		out.drain(0)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries || concurrency.Sleep(ctx, busyPause*time.Duration(try)) != nil {
			return nil, startError(c.Args[0], err)
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

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return exitSignalBase + int(ws.Signal())
	}
	return s.ExitCode()
}
