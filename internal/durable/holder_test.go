package durable

import (
	"os"
	"path/filepath"
	"strconv"
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
