package durable

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// holdEnv makes the test binary a process that takes the lock named by its
// value, says so, and holds it until it is killed.
const holdEnv = "JORC_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		lock, err := TryLock(path)
		if err != nil {
			_, _ = os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("locked\n")
		_, _ = io.Copy(io.Discard, os.Stdin) // a process in which everything waits would be ended
		runtime.KeepAlive(lock)              // its file would be closed once it is collected
	}
	os.Exit(m.Run())
}

func TestTryLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = TryLock(path)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("second: got %v, want ErrLocked", err)
	}
	if got, want := err.Error(), "held by pid "+strconv.Itoa(os.Getpid()); !strings.Contains(got, want) {
		t.Errorf("message: got %q, want %q in it", got, want)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := TryLock(path)
	if err != nil {
		t.Fatalf("after Unlock: got %v, want the lock", err)
	}
	if err := again.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestTryLockOtherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), holdEnv+"="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("child: got %q, %v, want it to hold the lock", line, err)
	}

	_, err = TryLock(path)
	if want := "held by pid " + strconv.Itoa(child.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("while the child lives: got %v, want %q in it", err, want)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	lock, err := TryLock(path)
	if err != nil {
		t.Fatalf("after kill -9: got %v, want the lock", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestTryLockUnknownHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	for _, content := range []string{"", "rubbish\n", "-3\n", "0\n"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := TryLock(path)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "held by another process") {
			t.Errorf("content %q: got %v, want ErrLocked by another process", content, err)
		}
	}
}

func TestTryLockMissingDirectory(t *testing.T) {
	t.Parallel()
	_, err := TryLock(filepath.Join(t.TempDir(), "none", "lock"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}
