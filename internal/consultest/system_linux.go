package consultest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Freeze stops the server's process without ending it: connections stay open
// and nothing answers. When it returns all of the process has stopped.
func (s *Server) Freeze() {
	s.t.Helper()
	s.refuseShared()
	s.signal(syscall.SIGSTOP)
	for {
		// It takes nothing from who waits for the process to end.
		err := unix.Waitid(unix.P_PID, s.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Thaw lets a frozen server continue.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// The signals that stop a process and let it continue.
const (
	StopSignal     = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)

// KillGroup ends all processes of a group, which may have ended already.
func KillGroup(id int) error {
	if err := syscall.Kill(-id, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Exists reports whether there is a process.
func Exists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// OwnGroup returns the attributes of a process in a group of its own.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// FileSizeSignal ends a process that writes more than LimitFiles allows, unless it is
// ignored.
const FileSizeSignal = syscall.SIGXFSZ

// LimitFiles makes writes of this process fail that would make a file longer than limit
// bytes.
func LimitFiles(limit uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit})
}
