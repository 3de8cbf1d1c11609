package durable

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

func TestHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	want := func(when, want string) {
		t.Helper()
		if got, err := Holder(path); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", when, got, err, want)
		}
	}
	want("no file", "")
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	want("held", "pid "+strconv.Itoa(os.Getpid()))
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	want("given back", "")
	if err := os.WriteFile(path, []byte("4711\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want("left behind by a holder that was killed", "")
	lock, err = TryLock(path)
	if err != nil {
		t.Fatalf("after Holder looked: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := Holder(filepath.Join(path, "below")); err == nil {
		t.Error("a path below a file: want an error")
	}
}

// TestHolderWhileForking: a child that is being forked has a copy of the file that Holder read, but not its
// lock.
func TestHolderWhileForking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("4711\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var forking sync.WaitGroup
	for range 4 {
		forking.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run() // ends with ctx
			}
		})
	}
	defer forking.Wait()
	defer stop()
	for range 2000 {
		if holder, err := Holder(path); holder != "" || err != nil {
			t.Fatalf("got %q, %v", holder, err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := flock(f, lockNow); err != nil {
			t.Fatalf("after Holder looked: %v", err)
		}
		if err := errors.Join(flock(f, unlock), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
