package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/consultest"
)

// lockedUp is a jorc that holds a slot for a shell with a child, which both do
// not care for SIGTERM.
type lockedUp struct {
	cmd                 *exec.Cmd
	guard, shell, child int
	stderr              bytes.Buffer
}

func lockUp(t *testing.T, s *consultest.Server) *lockedUp {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pids")
	l := &lockedUp{cmd: exec.Command(builtOnce(t), "cluster", "lock", "g", "--node", "n1", "--http-addr", s.HTTPAddr, "--",
		"sh", "-c", `trap "" TERM; sleep 1000 & echo $PPID $$ $! >`+file+".new; mv "+file+".new "+file+"; while :; do wait; done")}
	l.cmd.Stderr = &l.stderr
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() }) // it may have ended
	var text []byte
	consultest.Eventually(t, "the command", func(context.Context) (err error) { text, err = os.ReadFile(file); return err })
	if n, err := fmt.Sscan(string(text), &l.guard, &l.shell, &l.child); n != 3 || err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return l
}

func kill9(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func ended(t *testing.T, what string, pid int) {
	t.Helper()
	consultest.Eventually(t, "the end of "+what, func(context.Context) error {
		out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		if err == nil && !strings.HasPrefix(string(out), "Z") {
			return errors.New(string(out))
		}
		return nil
	})
}

// TestLockAnyKilled: whichever process is killed, no command continues without a slot.
func TestLockAnyKilled(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	t.Run("jorc", func(t *testing.T) {
		t.Parallel()
		l := lockUp(t, s)
		kill9(t, l.cmd.Process.Pid)
		_ = l.cmd.Wait()
		ended(t, "the child", l.child)
		ended(t, "the shell", l.shell)
		ended(t, "the guard", l.guard)
	})
	t.Run("guard", func(t *testing.T) {
		t.Parallel()
		l := lockUp(t, consultest.Start(t))
		kill9(t, l.guard)
		_ = l.cmd.Wait()
		if code := l.cmd.ProcessState.ExitCode(); code != exitSignal+int(syscall.SIGKILL) {
			t.Errorf("exit %d: %s", code, l.stderr.String())
		}
		ended(t, "the child", l.child)
		ended(t, "the shell", l.shell)
	})
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		l := lockUp(t, consultest.Start(t))
		t.Cleanup(func() { _ = syscall.Kill(l.child, syscall.SIGKILL) })
		kill9(t, l.cmd.Process.Pid, l.guard)
		_ = l.cmd.Wait()
		ended(t, "the shell", l.shell)
	})
}

// TestLockLeavesDaemons: what a command leaves behind when it ends by itself is
// not ended with it.
func TestLockLeavesDaemons(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	file := filepath.Join(t.TempDir(), "pid")
	if got := clusterLock(t.Context(), t, s, "g", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! >"+file); got != (result{0, "", ""}) {
		t.Fatalf("lock: %+v", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the daemon: %v", err)
	}
}
