//go:build !linux

package command

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// Process is a supervised program, which only Linux has.
type Process struct{}

// Start is not supported outside Linux.
func Start(context.Context, Command) (*Process, error) { return nil, errors.ErrUnsupported }

// Pid returns the number of the program's process group.
func (p *Process) Pid() int { return 0 }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return nil }

// Result returns how the program ended.
func (p *Process) Result() Result { return Result{} }

// Signal is not supported outside Linux.
func (p *Process) Signal(syscall.Signal) error { return errors.ErrUnsupported }

// Stop does nothing outside Linux.
func (p *Process) Stop() {}

// GuardedProcess is without a meaning outside Linux.
func GuardedProcess([]string, <-chan os.Signal, *os.File, *os.File) int { return ExitCannotRun }
