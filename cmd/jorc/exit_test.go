package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{&consul.Error{Class: consul.ErrOutcomeUnknown, Err: errors.New("x")}, 1},
		{&usageError{"jorc", "x"}, 2},
		{fmt.Errorf("load: %w", &config.Error{}), 2},
		{&consul.Error{Class: consul.ErrUnreachable, Err: context.DeadlineExceeded}, 3},
		{&consul.Error{Class: consul.ErrRateLimited, Err: errors.New("x")}, 3},
		{fmt.Errorf("x: %w", &consul.Error{Class: consul.ErrDenied, Err: errors.New("x")}), 5},
		{fmt.Errorf("set: %w", kv.ErrConflict), 4},
		{fmt.Errorf("lock: %w", kv.ErrLockLost), 6},
		{fmt.Errorf("wait: %w", blocker.ErrUsage), 2},
		{fmt.Errorf("wait: %w", blocker.ErrTimedOut), 124},
		{&exitError{code: exitStopped, err: consul.ErrUnreachable}, 6},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), 124},
		{signalError{syscall.SIGINT}, 130},
		{fmt.Errorf("read: %w", signalError{syscall.SIGTERM}), 143},
	} {
		if got := classify(test.err); got != test.want {
			t.Errorf("classify(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

// TestReport: an error is one line, "no" prints nothing, and diagnostics keep their lines.
func TestReport(t *testing.T) {
	t.Parallel()
	problems := &config.Error{Problems: []config.Problem{
		{File: "a.hcl", Line: 1, Column: 2, Message: "bad", Excerpt: "  1: x"}, {Message: "worse"},
	}}
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{&exitError{code: 1}, ""},
		{errors.New("one"), "jorc: one\n"},
		{errors.Join(errors.New("one"), errors.New("two")), "jorc: one; two\n"},
		{problems, "jorc: a.hcl:1,2: bad\n  1: x\nworse\n"},
	} {
		var b bytes.Buffer
		report(&b, test.err)
		if b.String() != test.want {
			t.Errorf("report(%v) = %q, want %q", test.err, b.String(), test.want)
		}
	}
}

// TestSignal: a command that a signal interrupted exits as shells expect.
func TestSignal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalError{syscall.SIGTERM})
	if err := endedBy(ctx, fmt.Errorf("wait: %w", ctx.Err())); classify(err) != 143 {
		t.Errorf("got %v (%d), want exit 143", err, classify(err))
	}
	if err := endedBy(ctx, fmt.Errorf("read keys: %w", context.Cause(ctx))); err.Error() != syscall.SIGTERM.String() {
		t.Errorf("got %v, want the signal", err)
	}
	other := errors.New("other")
	if err := endedBy(ctx, other); err != other {
		t.Errorf("got %v, want %v", err, other)
	}
}
