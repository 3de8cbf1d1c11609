// Command jorc is the daemon that runs beside a host's Consul agent and the
// operator's command line. This package holds the command tree: one file per
// noun, no logic.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/jorc/jorc/internal/command"
)

// Stamped by the Makefile through -ldflags.
var (
	version = ""
	commit  = ""
	date    = ""
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardArg {
		os.Exit(guard(os.Args[2:]))
	}
	keepWriteErrors()
	ctx, cancel := untilSignal(context.Background())
	code := run(ctx, os.Args[1:], host{
		etc:     "/etc",
		getenv:  os.Getenv,
		environ: os.Environ,
		author:  func() string { return osUser(os.Getenv) },
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		hangup:  hangups,
		exec:    syscall.Exec,
		guard:   guardSelf(),
		build:   stamped(version, commit, date),
	})
	cancel(nil)
	os.Exit(code)
}

// guardArg, as the first argument, makes jorc the guard of the command whose
// path and arguments follow.
const guardArg = "guard-command"

// guardSelf is the command line of a guard. Its program is the one that runs, also
// when there is another at its path by now.
func guardSelf() []string { return []string{"/proc/self/exe", guardArg} }

// guard runs a command for as long as the jorc that started this one is there. The
// signals that end the command's group pass it by.
func guard(args []string) int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT)
	return command.Guarded(args, os.Stdout, os.Stderr)
}

// keepWriteErrors makes a write to a closed pipe an error of the command instead of
// the process's end. Children have the signal's default.
func keepWriteErrors() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// untilSignal returns a context that SIGINT or SIGTERM ends, with the signal as
// its cause. The second signal ends the process the hard way.
func untilSignal(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			if number, ok := s.(syscall.Signal); ok {
				cancel(signalError{number})
			}
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// hangups delivers SIGHUPs until ctx ends. Only who calls it survives them.
func hangups(ctx context.Context) <-chan struct{} {
	signals, out := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
