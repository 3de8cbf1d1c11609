package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/durable"
)

// TestLocate follows links of jorc's own user.
func TestLocate(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	if err := os.MkdirAll(path("real/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("real/a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"absolute": path("real/a"), "relative": "real/a", "chain": "relative", "dangling": "real/new",
		"dir": "real", "deep": "real/sub", "loop": "loop", "nowhere": "none/file",
	} {
		if err := os.Symlink(to, path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"real/a": "real/a", "absolute": "real/a", "relative": "real/a", "chain": "real/a", "dangling": "real/new",
		"dir/a": "real/a", "dir/b": "real/b", "deep/../b": "real/b", "./dir//a": "real/a", "nowhere": "none/file", "x/y/z": "x/y/z",
	} {
		p, err := durable.Locate(root + "/" + name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := p.Path(); got != path(want) {
			t.Errorf("%s: got %s, want %s", name, got, path(want))
		}
		if err := p.Dir.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]error{"loop": syscall.ELOOP, "real/a/b": syscall.ENOTDIR} {
		if _, err := durable.Locate(path(name)); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	if err := os.Symlink("real", path("link")); err != nil {
		t.Fatal(err)
	}
	if err := durable.MkdirAll(path("link/a/b"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"real", "real/a", "real/a/b"} {
		info, err := os.Lstat(path(name))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := info.Mode(), fs.ModeDir|0o777; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if err := durable.MkdirAll(path("real/a"), 0o700); err != nil {
		t.Errorf("a directory that exists: %v", err)
	}
	if info, err := os.Stat(path("real/a")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("a directory that exists: got %v, %v, want its mode as it was", info, err)
	}
	if err := os.WriteFile(path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "file/sub"} {
		if err := durable.MkdirAll(path(name), 0o700); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("%s: got %v, want ENOTDIR", name, err)
		}
	}
}

// TestUpdate follows a link of jorc's own user and keeps the mode.
func TestUpdate(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	for i, data := range []string{"one", "two", "two"} {
		changed, lost, err := durable.Update(link, []byte(data), 0o640)
		if err != nil || len(lost) > 0 || changed != (i < 2) {
			t.Fatalf("%d: got %v, %q, %v", i, changed, lost, err)
		}
		got, err := os.ReadFile(real)
		if err != nil || string(got) != data {
			t.Errorf("%d: got %q, %v, want %q", i, got, err, data)
		}
		info, err := os.Lstat(real)
		if want := []fs.FileMode{0o640, 0o600, 0o600}[i]; err != nil || info.Mode() != want {
			t.Errorf("%d: got %v, %v, want %v", i, info.Mode(), err, want)
		}
		if err := os.Chmod(real, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link: got %v, %v, want it as it was", info, err)
	}
}

// TestWorldWritable: in a directory that every user may write to, without the
// sticky bit, no link is jorc's own for sure.
func TestWorldWritable(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	open := filepath.Join(root, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.Symlink(root, filepath.Join(open, "link"))); err != nil {
		t.Fatal(err)
	}
	var link *durable.LinkError
	if _, err := durable.Locate(filepath.Join(open, "link", "x")); !errors.As(err, &link) || link.Path != filepath.Join(open, "link") {
		t.Errorf("got %v, want the link refused", err)
	}
	var owner *durable.OwnerError
	if err := durable.CheckOwner(open); !errors.As(err, &owner) || owner.Path != open {
		t.Errorf("got %v, want the directory refused", err)
	}
	if err := durable.CheckOwner(root); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := os.Chmod(open, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := durable.CheckOwner(filepath.Join(open, "link")); err != nil {
		t.Errorf("sticky: got %v, want nil", err)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	if err := errors.Join(
		os.Chmod(root, 0o755), os.WriteFile(path("a"), []byte("text"), 0o600), os.Symlink("a", path("link")), os.Symlink(path("a"), path("absolute")),
		os.Symlink("none", path("dangling")), os.Mkdir(path("dir"), 0o755), os.Symlink("..", path("dir/up")),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "link", "absolute", "dir/up/link", "./dir/../a"} {
		if data, err := durable.ReadFile(root+"/"+name, 4); err != nil || string(data) != "text" {
			t.Errorf("%s: got %q, %v, want it read", name, data, err)
		}
	}
	for name, want := range map[string]error{"dir": durable.ErrNotRegular, "dangling": fs.ErrNotExist, "none/a": fs.ErrNotExist, "a/b": syscall.ENOTDIR} {
		if _, err := durable.ReadFile(path(name), 4); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if _, err := durable.ReadFile(path("a"), 3); err == nil {
		t.Error("got nil for a file that is too large")
	}
}
