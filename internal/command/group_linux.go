package command

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithThread makes the kernel end a process with the thread that starts it.
func endWithThread(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return a
}

// ending describes the end of a process.
type ending struct {
	done   chan struct{} // closed when the process has ended
	killed bool          // by a signal
}

// exit waits for the end of the process without reaping it: its number, and its
// group's, are not reused until it is reaped.
func exit(pid int) *ending {
	e := &ending{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		const exited = 1 // CLD_EXITED
		var info unix.Siginfo
		for {
			err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				e.killed = err == nil && info.Code != exited
				return
			}
		}
	}()
	return e
}

// StartTime returns when a process began, in the kernel's ticks since the boot. With its
// number this names one process of a boot. It is empty when there is no such process.
func StartTime(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	return startTime(string(stat))
}

// startTime is the 22nd field of /proc/PID/stat; the second is in parentheses
// and may hold anything.
func startTime(stat string) string {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// oldKernelPause is how long a killed process gets where it cannot be waited for.
const oldKernelPause = 10 * time.Millisecond

// Kill kills the process pid if meant confirms that it is the one, and waits until it
// has ended. It kills no other process that got the same number meanwhile.
func Kill(pid int, meant func() bool, wait time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.ENOSYS): // before Linux 5.3
		if !meant() {
			return nil
		}
		err = unix.Kill(pid, unix.SIGKILL)
		time.Sleep(min(wait, oldKernelPause)) // the caller looks again
		return err
	case err != nil:
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !meant() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return err
	}
	for end := time.Now().Add(wait); ; {
		left := max(time.Until(end), 0)
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
