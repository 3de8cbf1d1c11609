//go:build !linux

package consultest

import (
	"errors"
	"syscall"
)

// Freeze is for tests on Linux.
func (s *Server) Freeze() {
	s.t.Helper()
	s.t.Fatal("consultest: a server can be frozen on Linux only")
}

// Thaw lets a frozen server continue.
func (s *Server) Thaw() {}

// The signals that stop a process and let it continue exist on Linux only.
const (
	StopSignal     = syscall.Signal(0)
	ContinueSignal = syscall.Signal(0)
)

// KillGroup is for tests on Linux.
func KillGroup(int) error { return errors.ErrUnsupported }

// Exists is for tests on Linux.
func Exists(int) bool { return false }

// OwnGroup is for tests on Linux.
func OwnGroup() *syscall.SysProcAttr { return nil }

// FileSizeSignal exists on Linux only.
const FileSizeSignal = syscall.Signal(0)

// LimitFiles is for tests on Linux.
func LimitFiles(uint64) error { return errors.ErrUnsupported }
