//go:build linux

package fleettest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The main goroutine keeps the main thread: no other goroutine moves that
// thread, which represents the process in /proc, to another namespace.
func init() { runtime.LockOSThread() }

// space is the name of a network namespace.
type space string

func (s space) path() string { return filepath.Join(namespaces, string(s)) }

// within calls do on a thread in the namespace and returns its error. The
// thread ends with the call.
func (s space) within(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if err := s.enter(); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

func (s space) enter() error {
	ns, err := os.Open(s.path())
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", s, err)
	}
	return nil
}

// dial is net.Dialer.DialContext from within the namespace, for addresses
// without names in them.
func (s space) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.dialWith(ctx, &net.Dialer{Timeout: 10 * time.Second}, network, addr)
}

func (s space) dialWith(ctx context.Context, d *net.Dialer, network, addr string) (c net.Conn, err error) {
	err = s.within(func() (err error) {
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

func (s space) listen(addr string) (l net.Listener, err error) {
	err = s.within(func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// pids are the processes in the namespace, but for this one.
func (s space) pids() []int {
	var own unix.Stat_t
	if unix.Stat(s.path(), &own) != nil {
		return nil // it has gone
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var ns unix.Stat_t
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns", "net"), &ns) == nil && ns.Ino == own.Ino && ns.Dev == own.Dev {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAll kills all processes in the namespace, including new ones, and returns when
// none is left. They stand still first: as in a power cut, none sees another one end.
func (s space) killAll() {
	for {
		pids := s.pids()
		if len(pids) == 0 {
			return
		}
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range pids {
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
		time.Sleep(time.Millisecond) // the kernel needs a moment to end them
	}
}
