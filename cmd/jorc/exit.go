package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/watch"
)

// Exit codes: a promise to scripts.
const (
	exitOK          = 0
	exitFailed      = 1 // failed, or the answer is no; also "outcome unknown"
	exitUsage       = 2 // wrong usage or configuration
	exitUnreachable = 3 // Consul could not be reached
	exitConflict    = 4 // a reference, index or test did not match; nothing was written
	exitDenied      = 5 // denied by ACLs
	exitStopped     = 6 // paused, held or aborted; a lock was lost
	checkPuppetHeld = 9 // convergence is held, as check_puppet says
	exitTimeout     = 124
	exitCannotRun   = 126 // COMMAND after "--" cannot be run
	exitNotFound    = 127 // COMMAND after "--" is not found
	exitSignal      = 128 // plus the number of the signal that ended jorc
)

// classes maps errors to exit codes by errors.Is; the first that matches
// counts, so the more specific one stands first: a request that timed out because
// Consul is away is "unreachable".
var classes = []struct {
	target error
	code   int
}{
	{converge.ErrFailed, exitFailed},
	{legacy.ErrPuppetDisabled, checkPuppetHeld},
	{converge.ErrHeld, exitStopped},
	{blocker.ErrUsage, exitUsage},
	{text.ErrName, exitUsage},
	{cluster.ErrBadState, exitUsage},
	{cluster.ErrInvalid, exitUsage},
	{consul.ErrNoToken, exitUsage},
	{consul.ErrDenied, exitDenied},
	{kv.ErrConflict, exitConflict},
	{catalog.ErrForeign, exitConflict},
	{catalog.ErrConfigured, exitConflict},
	{cluster.ErrProvisioned, exitConflict},
	{fleet.ErrForeignPolicy, exitConflict},
	{profile.ErrMismatch, exitConflict},
	{profile.ErrConflicts, exitConflict},
	{kv.ErrLockLost, exitStopped},
	{watch.ErrHeld, exitStopped},
	{consul.ErrUnreachable, exitUnreachable},
	{consul.ErrRateLimited, exitUnreachable}, // so much of it that it does not answer
	{converge.ErrPending, exitTimeout},
	{blocker.ErrTimedOut, exitTimeout},
	{context.DeadlineExceeded, exitTimeout},
}

// usageExits are the codes of wrong usage and configuration for commands that
// promise others than exitUsage.
var usageExits = map[string]int{"jorc update pending": exitPending, "jorc pending_update": exitPending}

// exitCode returns the exit code of err after the command line args.
func exitCode(app *cli.App, args []string, err error) int {
	code := classify(err)
	if special, ok := usageExits[commandOf(app, args)]; ok && code == exitUsage && !errors.As(err, new(*exitError)) {
		return special
	}
	return code
}

// classify returns the exit code of err.
func classify(err error) int {
	if err == nil {
		return exitOK
	}
	var (
		explicit *exitError
		usage    *usageError
		file     *config.Error
		signal   signalError
	)
	switch {
	case errors.As(err, &explicit):
		return explicit.code
	case errors.As(err, &usage), errors.As(err, &file):
		return exitUsage
	case errors.As(err, &signal):
		return exitSignal + int(signal.number)
	}
	for _, c := range classes {
		if errors.Is(err, c.target) {
			return c.code
		}
	}
	return exitFailed
}

// answered is err, or that the answer could not be written to stdout. Codes of
// commands that answer by their exit code stay.
func answered(err, writeErr error) error {
	if writeErr == nil {
		return err
	}
	writeErr = fmt.Errorf("write the answer to stdout: %w", writeErr)
	var explicit *exitError
	switch {
	case err == nil:
		return writeErr
	case errors.As(err, &explicit) && explicit.err == nil && explicit.code == exitFailed:
		return &exitError{code: exitFailed, err: writeErr}
	case errors.As(err, &explicit) && explicit.err == nil:
		return &exitError{code: explicit.code, err: writeErr}
	}
	return err
}

// report writes err to w as one line; a configuration's diagnostics keep the
// lines of the file that they point at.
func report(w io.Writer, err error) {
	var explicit *exitError
	if err == nil || errors.As(err, &explicit) && explicit.err == nil {
		return
	}
	text := strings.TrimSpace(err.Error()) + after(": ", cluster.RepairHint(err))
	if file := new(*config.Error); !errors.As(err, file) {
		text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	}
	fmt.Fprintf(w, "jorc: %s\n", text)
}

// exitError carries an exit code of its own. Without err nothing is printed:
// the answer "no" is on stdout already, or is the exit code itself.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// errNo is the answer "no" of commands that answer by their exit code.
var errNo = &exitError{code: exitFailed}

// answerOf is nil for yes.
func answerOf(yes bool) error {
	if yes {
		return nil
	}
	return errNo
}

// usageError describes a wrong command line and names the help to read.
type usageError struct {
	command string // "jorc config validate"
	text    string
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%s; see '%s --help'", e.text, e.command)
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ number syscall.Signal }

func (e signalError) Error() string { return e.number.String() }

// endedBy replaces "context canceled", and what a signal interrupted, by the signal that
// ended ctx.
func endedBy(ctx context.Context, err error) error {
	var cause signalError
	if errors.As(err, &cause) || errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}
