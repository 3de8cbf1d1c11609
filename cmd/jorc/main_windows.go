package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// become runs a program in place of this process, which Windows cannot replace, and
// ends with its exit code. It returns only when the program cannot be run.
func become(path string, args, environ []string) error {
	cmd := &exec.Cmd{Path: path, Args: args, Env: environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they reach the program, which shares the console
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); err == nil || errors.As(err, &ended) {
		os.Exit(cmd.ProcessState.ExitCode())
	}
	return err
}
