package filewatch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/filewatch"
)

// TestWatch: a file is reported at the start and after each kind of change, until the
// context ends.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		setup func(dir string) error // of the file dir/d/f
		steps []func(dir string) error
	}{
		{"written in place", nil, []func(string) error{write("d/f", "1"), write("d/f", "2")}},
		{"replaced by a rename", nil, []func(string) error{replace("d/f", "1"), replace("d/f", "2")}},
		{"removed and made again", write("d/f", "0"), []func(string) error{remove("d/f"), write("d/f", "1")}},
		{"a directory that comes later", remove("d"), []func(string) error{makeDir("d"), write("d/f", "1")}},
		{"a directory that is replaced", write("d/f", "0"), []func(string) error{
			rename("d", "old"), makeDir("d"), write("d/f", "1"), write("d/f", "2"),
		}},
		{"a directory on the way that is replaced", all(rename("d", "moved"), makeDir("a"), makeDir("a/b"), link("a/b", "d"), write("d/f", "0")), []func(string) error{
			rename("a", "old"), all(makeDir("a"), makeDir("a/b"), write("d/f", "1")), write("d/f", "2"),
		}},
		{"a link on the way that is replaced", all(rename("d", "1"), makeDir("2"), write("2/f", "2"), link("1", "d")), []func(string) error{
			write("d/f", "1"), all(link("2", "new"), rename("new", "d")), write("d/f", "3"),
		}},
		{"a directory that is replaced by a rename", write("d/f", "0"), []func(string) error{
			remove("d/f"), all(makeDir("new"), renameOnto("new", "d")), write("d/f", "1"),
		}},
		{"a relative link", all(makeDir("a"), write("a/f", "0"), func(dir string) error { return os.Symlink("../a/./f", filepath.Join(dir, "d/f")) }), []func(string) error{
			write("a/f", "1"), all(rename("a", "old"), makeDir("a")), write("a/f", "2"),
		}},
		{"the target of a link", all(write("target", "0"), link("target", "d/f")), []func(string) error{write("target", "1"), replace("target", "2")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, makeDir("d")(dir))
			if test.setup != nil {
				must(t, test.setup(dir))
			}
			seen := make(chan string, 1000)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				filewatch.Watch(ctx, filepath.Join(dir, "d/f"), func(context.Context) { seen <- read(t, dir) }, hclog.NewNullLogger())
			})
			await(seen, read(t, dir))
			for _, step := range test.steps {
				must(t, step(dir))
				await(seen, read(t, dir))
			}
			cancel()
			running.Wait()
		})
	}
}

// TestCheck: only files that were asked for are watched, and reported by their index.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	found := make(chan int, 1000)
	w := filewatch.New([]string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}, 0, func(_ context.Context, i int) { found <- i }, hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { w.Run(ctx) })
	w.Check(1)
	if got := <-found; got != 1 {
		t.Errorf("got file %d, want 1", got)
	}
	must(t, write("a", "1")(dir))
	must(t, write("b", "1")(dir))
	if got := <-found; got != 1 {
		t.Errorf("got file %d, which was not asked for", got)
	}
	w.Check(0)
	for <-found != 0 { // b may be reported more than once
	}
	cancel()
	all.Wait()
	var none *filewatch.Watcher
	none.Check(0) // does nothing
}

// await receives until the file was seen with a content.
func await(seen <-chan string, want string) {
	for got := range seen {
		if got == want {
			return
		}
	}
}

// read returns the content of dir/d/f; "none" if it does not exist.
func read(t *testing.T, dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "d/f"))
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(name, text string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
}

func replace(name, text string) func(string) error {
	return func(dir string) error {
		if err := write("temp", text)(dir); err != nil {
			return err
		}
		return rename("temp", name)(dir)
	}
}

func rename(from, to string) func(string) error {
	return func(dir string) error { return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
}

func remove(name string) func(string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}

func makeDir(name string) func(string) error {
	return func(dir string) error { return os.Mkdir(filepath.Join(dir, name), 0o700) }
}

func link(target, name string) func(string) error {
	return func(dir string) error { return os.Symlink(filepath.Join(dir, target), filepath.Join(dir, name)) }
}

func all(steps ...func(string) error) func(string) error {
	return func(dir string) error {
		for _, step := range steps {
			if err := step(dir); err != nil {
				return err
			}
		}
		return nil
	}
}

// renameOnto is rename onto an empty directory, which os.Rename refuses.
func renameOnto(from, to string) func(string) error {
	return func(dir string) error { return syscall.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
}
