// Package command runs programs for jorc: each in a process group of its own,
// with a timeout that ends the whole group, a bounded tail of its output, and
// an environment without Consul's and Vault's secrets.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

const (
	defaultGrace     = 2 * time.Second
	defaultMaxOutput = 4096
	// drainTime is how long output is still read after the command has ended,
	// when a child it left behind keeps the pipe open.
	drainTime = 250 * time.Millisecond
)

// Exit codes as shells and timeout(1) give them.
const (
	ExitTimeout    = 124
	ExitCannotRun  = 126
	ExitNotFound   = 127
	exitSignalBase = 128
)

// Command is one program to run. Its standard input is /dev/null.
type Command struct {
	Args []string // program and arguments; the program is looked up in jorc's own PATH
	Dir  string   // default: jorc's
	Env  []string // exactly these; nil means Environ()
	User string   // name or number; runs with that user's groups; needs root

	Timeout   time.Duration // 0 = none
	Grace     time.Duration // between SIGTERM and SIGKILL, default 2s
	MaxOutput int           // bytes of output kept, the last ones; default 4096
	Redact    []string      // secrets that are kept out of all output: "[redacted]" stands in their places

	// Guard, if set, is a program with arguments that calls Guarded with those that
	// follow. The command and its process group then end when jorc ends, also by
	// SIGKILL: they get SIGTERM and, 2 s later, SIGKILL.
	Guard []string

	// Stdout and Stderr also get everything as it comes. They must not block,
	// and are not used after Run has returned.
	Stdout, Stderr io.Writer
}

// Result is how a command ended.
type Result struct {
	ExitCode  int    // 128+n when signal n ended it, 124 when it timed out, 126 or 127 when it could not be started
	Output    string // tail of stdout and stderr together, valid UTF-8
	Truncated bool   // Output lacks the beginning
	TimedOut  bool
	Took      time.Duration
}

// OK says whether the command ran to its end and exited with 0.
func (r Result) OK() bool { return r.ExitCode == 0 && !r.TimedOut }

// Run runs c to its end. A command that fails or times out is a Result, not an
// error. When the timeout passes or ctx ends, the whole process group gets
// SIGTERM and, after c.Grace, SIGKILL. A command that ends by itself may leave
// children behind (a daemon): they are left alone, but what they write to an
// inherited stdout is no longer read.
//
// Errors wrap ErrNotFound or ErrPermission when c could not be started, and
// ctx.Err() when ctx ended; the Result then holds the output so far.
func Run(ctx context.Context, c Command) (Result, error) {
	begin := time.Now()
	if len(c.Args) == 0 || c.Args[0] == "" {
		return Result{ExitCode: ExitNotFound}, fmt.Errorf("empty command: %w", ErrNotFound)
	}
	if err := ctx.Err(); err != nil {
		return Result{ExitCode: ExitCannotRun}, fmt.Errorf("%s: not started: %w", c.Args[0], err)
	}
	tail := newTail(c.MaxOutput)
	cmd, out, held, err := start(ctx, c, tail)
	if err != nil {
		code := ExitCannotRun
		if errors.Is(err, ErrNotFound) {
			code = ExitNotFound
		}
		return Result{ExitCode: code, Took: time.Since(begin)}, err
	}
	timedOut, err := supervise(ctx, c, cmd, out)
	if held != nil {
		_ = held.Close()
	}

	res := Result{ExitCode: exitCode(cmd.ProcessState), TimedOut: timedOut, Took: time.Since(begin)}
	if timedOut {
		res.ExitCode = ExitTimeout
	}
	res.Output, res.Truncated = tail.text()
	if err != nil {
		return res, fmt.Errorf("%s: stopped: %w", c.Args[0], err)
	}
	return res, nil
}

// supervise waits for the command, ends its group when it has to, and returns
// when nobody reads or writes for it any more. The error is ctx's.
func supervise(ctx context.Context, c Command, cmd *exec.Cmd, out *output) (timedOut bool, err error) {
	exited := exit(cmd.Process.Pid)
	var timeout <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-exited.done:
	case <-timeout:
		timedOut = true
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case timedOut || err != nil:
		endGroup(cmd.Process.Pid, c.Grace, exited.done, out.done)
	case len(c.Guard) > 0 && exited.killed:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the guard was for
	}
	// The group is not signalled after this: once reaped, its number may belong to others.
	_ = cmd.Wait() // the state says it all
	out.drain(drainTime)
	return timedOut, err
}

// endGroup asks the process group to end and, when it has not within grace,
// makes it. The group counts as ended when its leader is gone and nobody holds
// its output any more; whatever is left of it then is killed too.
func endGroup(pgid int, grace time.Duration, exited, silent <-chan struct{}) {
	if grace <= 0 {
		grace = defaultGrace
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	_ = syscall.Kill(-pgid, syscall.SIGTERM)
	// A stopped process would see the signal only when continued.
	_ = syscall.Kill(-pgid, syscall.SIGCONT)
	left := exited
	for left != nil || silent != nil {
		select {
		case <-left:
			left = nil
		case <-silent:
			silent = nil
		case <-t.C:
			left, silent = nil, nil
		}
	}
	_ = syscall.Kill(-pgid, syscall.SIGKILL)
	<-exited
}
