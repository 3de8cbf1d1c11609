package crashtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/durable"
)

// writers bring the file f from old to new, in ways that keep it or not.
var writers = map[string]func(dir string) error{
	"durable":      func(dir string) error { return durable.WriteFile(filepath.Join(dir, "f"), []byte("new"), 0o644) },
	"in place":     func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), []byte("new"), 0o644) },
	"nothing sync": func(dir string) error { return replaceFile(dir, false, false) },
	"no sync":      func(dir string) error { return replaceFile(dir, false, true) },
	"no directory": func(dir string) error { return replaceFile(dir, true, false) },
	"by hand":      func(dir string) error { return replaceFile(dir, true, true) },
	"removed first": func(dir string) error {
		if err := os.Remove(filepath.Join(dir, "f")); err != nil {
			return err
		}
		return replaceFile(dir, true, true)
	},
	"new directory": func(dir string) error {
		if err := durable.MkdirAll(filepath.Join(dir, "sub", "deep"), 0o755); err != nil {
			return err
		}
		return durable.WriteFile(filepath.Join(dir, "sub", "deep", "f"), []byte("new"), 0o644)
	},
	"threads": func(dir string) error {
		for range 50 {
			go runtime.LockOSThread() // its thread ends with it
			go func() { _, _ = os.Stat(dir) }()
		}
		return os.WriteFile(filepath.Join(dir, "f"), []byte("new"), 0o644)
	},
	"two": func(dir string) error {
		return errors.Join(os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")), os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, "d")))
	},
}

// TestThreadsEnd: a recording ends although threads of what is recorded end at any time, also before their
// first system call.
func TestThreadsEnd(t *testing.T) {
	t.Parallel()
	for range 30 {
		Record(t, "threads", t.TempDir())
	}
}

func replaceFile(dir string, file, directory bool) error {
	temp := filepath.Join(dir, "temp")
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.WriteString("new")
	if file {
		err = errors.Join(err, f.Sync())
	}
	err = errors.Join(err, f.Close(), os.Rename(temp, filepath.Join(dir, "f")))
	if directory {
		err = errors.Join(err, durable.SyncDir(dir))
	}
	return err
}

func init() {
	all := map[string]func(string) error{}
	for name, write := range writers {
		all[name] = func(dir string) error { return errors.Join(write(dir), Mark(written)) }
	}
	if code, child := Child(all); child {
		os.Exit(code)
	}
}

// TestStates: the states that a crash may leave of each writer contain exactly its faults.
func TestStates(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"durable":       "new old",
		"by hand":       "new old",
		"in place":      `"" "\x00\x00\x00" "n" new old taken-back`,
		"nothing sync":  `"" "\x00\x00\x00" "n" new old taken-back`,
		"no sync":       `"" "\x00\x00\x00" "n" new old taken-back`,
		"no directory":  "new old taken-back",
		"removed first": "gone new old",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			Record(t, name, dir).Replay(t, func(c *Crash) error {
				data, err := os.ReadFile(filepath.Join(dir, "f"))
				text := string(data)
				switch {
				case errors.Is(err, os.ErrNotExist):
					text = "gone"
				case err != nil:
					return err
				case text != "old" && text != "new":
					text = fmt.Sprintf("%q", text)
				}
				found[text] = true
				if c.Marked(written) && text != "new" {
					found["taken-back"] = true
				}
				return nil
			})
			if got := sorted(found); got != want {
				t.Errorf("states: got %s, want %s", got, want)
			}
		})
	}
}

// TestNewDirectories: durable makes the names of new directories last before what is in them.
func TestNewDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := Record(t, "new directory", dir).Replay(t, func(c *Crash) error {
		path := filepath.Join(dir, "sub", "deep", "f")
		data, err := os.ReadFile(path)
		if c.Marked(written) && string(data) != "new" {
			return fmt.Errorf("got %q, %w, want new", data, err)
		}
		if info, err := os.Stat(filepath.Dir(path)); c.Marked(written) && (err != nil || info.Mode().Perm() != 0o755) {
			return fmt.Errorf("the directory: got %v, %w, want mode 0755", info.Mode(), err)
		}
		return nil
	})
	if n < 5 {
		t.Errorf("states: got %d, want more", n)
	}
}

// TestReordered: renames that were not synced are on the disk in any order.
func TestReordered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]bool{}
	Record(t, "two", dir).Replay(t, func(*Crash) error {
		entries, err := os.ReadDir(dir)
		names := ""
		for _, e := range entries {
			names += e.Name()
		}
		found[names] = true
		return err
	})
	if got, want := sorted(found), "ac ad bc bd"; got != want {
		t.Errorf("states: got %s, want %s", got, want)
	}
}

func sorted(found map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}
