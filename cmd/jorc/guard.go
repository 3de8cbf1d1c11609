package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/jorc/jorc/internal/command"
)

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
	return command.Guarded(args)
}
