// Package command runs programs for jorc: each in its own process group, with a
// timeout that ends the whole group, the last part of its output, and an
// environment without Consul's and Vault's secrets.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	defaultGrace     = 2 * time.Second
	defaultMaxOutput = 4096
	// drainTime is how long output is read after the command has ended if a child
	// that is still running keeps the pipe open.
	drainTime = 250 * time.Millisecond
)

// Exit codes of shells and timeout(1).
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
	Grace     time.Duration // between SIGTERM, or StopSignal, and SIGKILL, default 2s
	MaxOutput int           // how many of the last bytes of output are kept; default 4096
	Redact    []string      // secrets to replace by "[redacted]" in all output

	// Guard, if set, is a program with arguments that calls Guarded with the
	// arguments after its own. The command and its process group then end when jorc
	// ends, also by SIGKILL: they get SIGTERM and, 2 s later, SIGKILL.
	Guard []string

	// For Start only: the signal that asks the program to end, default SIGTERM, and a
	// lock file that the guard keeps open.
	StopSignal syscall.Signal
	Lock       *os.File

	// Stdout and Stderr also get all output as it is written. They must not block,
	// and are not used after Run has returned.
	Stdout, Stderr io.Writer
}

// Result is how a command ended.
type Result struct {
	ExitCode  int    // 128+n when signal n ended it, 124 when it timed out, 126 or 127 when it could not be started
	Output    string // the end of stdout and stderr combined, valid UTF-8
	Truncated bool   // Output lacks the beginning
	TimedOut  bool
	Took      time.Duration
}

// OK reports whether the command ran to its end and exited with 0.
func (r Result) OK() bool { return r.ExitCode == 0 && !r.TimedOut }

// Run runs c to its end. A command that fails or times out is a Result, not an
// error. When the timeout passes or ctx ends, the whole process group gets
// SIGTERM and, after c.Grace, SIGKILL. Children that outlive a command which ends
// by itself (a daemon) keep running, but their output to an inherited stdout is
// no longer read.
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
	r, err := start(ctx, c, tail)
	if err != nil {
		code := ExitCannotRun
		if errors.Is(err, ErrNotFound) {
			code = ExitNotFound
		}
		return Result{ExitCode: code, Took: time.Since(begin)}, err
	}
	defer r.close()
	timedOut, err := r.supervise(ctx, c)

	res := Result{ExitCode: exitCode(r.cmd.ProcessState), TimedOut: timedOut, Took: time.Since(begin)}
	if timedOut {
		res.ExitCode = ExitTimeout
	}
	res.Output, res.Truncated = tail.text()
	if err != nil {
		return res, fmt.Errorf("%s: stopped: %w", c.Args[0], err)
	}
	return res, nil
}

// supervise waits for the command, ends its group on timeout or when ctx ends,
// and returns when its output is no longer read. The error is ctx's.
func (r *running) supervise(ctx context.Context, c Command) (timedOut bool, err error) {
	var timeout <-chan time.Time
	if c.Timeout > 0 {
		t := time.NewTimer(c.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-r.done:
	case <-timeout:
		timedOut = true
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case timedOut || err != nil:
		r.end(c.Grace)
	case len(c.Guard) > 0 && r.killed:
		r.kill() // the guard can no longer do it
	}
	// The group gets no signal after this: once it is reaped, its number may be reused.
	_ = r.cmd.Wait() // ProcessState has the result
	r.out.drain(drainTime)
	return timedOut, err
}

// end asks the group to end, and kills it when its leader has ended and its output is
// closed, or after grace.
func (r *running) end(grace time.Duration) {
	if grace <= 0 {
		grace = defaultGrace
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	r.terminate()
	leader, closed := r.done, r.out.done
	for leader != nil || closed != nil {
		select {
		case <-leader:
			leader = nil
		case <-closed:
			closed = nil
		case <-t.C:
			leader, closed = nil, nil
		}
	}
	r.kill()
	<-r.done
}
