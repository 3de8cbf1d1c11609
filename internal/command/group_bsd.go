//go:build darwin || freebsd

package command

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithThread does nothing: only Linux ends a process with the thread that starts it.
func endWithThread(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }

// ending describes the end of a process.
type ending struct {
	done   chan struct{} // closed when the process has ended
	killed bool          // by a signal; not known here
}

// exit waits for the end of the process without reaping it: its number, and its
// group's, are not reused until it is reaped.
func exit(pid int) *ending {
	e := &ending{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		queue, err := unix.Kqueue()
		if err != nil {
			return // the caller waits for the process itself
		}
		defer func() { _ = unix.Close(queue) }()
		exits := make([]unix.Kevent_t, 1)
		unix.SetKevent(&exits[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
		exits[0].Fflags = unix.NOTE_EXIT
		for {
			_, err := unix.Kevent(queue, exits, exits, nil) // an error: it has ended already
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return e
}
