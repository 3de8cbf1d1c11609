package replace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jorc/jorc/internal/durable"
)

func TestReplaceOneFile(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcde\n", 10<<20/16)
	for name, tt := range map[string]struct{ old, data string }{
		"text":         {old: "before\n", data: "after\n"},
		"to empty":     {old: "before\n", data: ""},
		"binary":       {old: "before\n", data: "\x00\xff\xfe\r\n\x00"},
		"same size":    {old: "before\n", data: "behind\n"},
		"10 MB":        {old: "before\n", data: big},
		"10 MB before": {old: big, data: "after\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write(t, "a", tt.old)
			out := p.replace(t, p.file("a", tt.data))
			wantStrings(t, "changed", out.Changed, []string{p.path("a")})
			p.want(t, "a", tt.data)
			p.wantClean(t)

			again := p.replace(t, p.file("a", tt.data))
			wantStrings(t, "changed again", again.Changed, nil)
		})
	}
}

// TestKeptBackup: with Backup the previous file stays beside the new one, also with a
// reload; after a reload that failed, the backup is as it was.
func TestKeptBackup(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := func(data string, reload ...string) File {
		f := p.file("a", data)
		f.Backup, f.Reload = true, reload
		return f
	}
	p.replace(t, file("one"))
	p.wantNone(t, "a"+BackupSuffix)
	p.replace(t, file("two"))
	p.want(t, "a"+BackupSuffix, "one")
	p.replace(t, file("three", "true"))
	p.want(t, "a"+BackupSuffix, "two")
	if _, err := p.r.Replace(t.Context(), Unit{Name: "u", Files: []File{file("four", "false")}}); err == nil {
		t.Error("a reload that fails: got no error")
	}
	p.want(t, "a", "three")
	p.want(t, "a"+BackupSuffix, "two")
	p.replace(t, file("three"))
	p.want(t, "a"+BackupSuffix, "two")
}

// TestEqualBytes must not even touch the file, let alone check or reload it.
func TestEqualBytes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "same")
	f := p.file("a", "same")
	f.Check, f.Reload = p.sh("touch checked"), p.sh("touch reloaded")
	before := inode(t, p.path("a"))
	out := p.replace(t, f)
	if len(out.Changed)+len(out.Fixed)+len(out.Reloaded) != 0 {
		t.Errorf("outcome: got %+v, want nothing done", out)
	}
	if got := inode(t, p.path("a")); got != before {
		t.Errorf("inode: got %d, want %d", got, before)
	}
	p.wantNone(t, "checked")
	p.wantNone(t, "reloaded")
}

func TestModes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		old        string
		oldMode    fs.FileMode // 0: no file
		perms      fs.FileMode
		want       fs.FileMode
		wantFixed  bool
		wantChange bool
	}{
		{name: "new, default", want: 0o644, wantChange: true},
		{name: "new, configured", perms: 0o600, want: 0o600, wantChange: true},
		{name: "new, beyond the umask", perms: 0o666, want: 0o666, wantChange: true},
		{name: "kept", old: "x", oldMode: 0o640, want: 0o640, wantChange: true},
		{name: "changed", old: "x", oldMode: 0o640, perms: 0o755, want: 0o755, wantChange: true},
		{name: "equal bytes, not configured", old: "data", oldMode: 0o604, want: 0o604},
		{name: "equal bytes, configured alike", old: "data", oldMode: 0o604, perms: 0o604, want: 0o604},
		{name: "equal bytes, configured otherwise", old: "data", oldMode: 0o604, perms: 0o640, want: 0o640, wantFixed: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if tt.oldMode != 0 {
				p.write(t, "a", tt.old)
				if err := os.Chmod(p.path("a"), tt.oldMode); err != nil {
					t.Fatal(err)
				}
			}
			f := p.file("a", "data")
			f.Perms = tt.perms
			f.Reload = p.sh("touch reloaded")
			out := p.replace(t, f)
			info, err := os.Stat(p.path("a"))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != tt.want {
				t.Errorf("mode: got %o, want %o", got, tt.want)
			}
			if got := len(out.Fixed) == 1; got != tt.wantFixed {
				t.Errorf("fixed: got %v, want %v", got, tt.wantFixed)
			}
			if got := len(out.Changed) == 1; got != tt.wantChange {
				t.Errorf("changed: got %v, want %v", got, tt.wantChange)
			}
			if !tt.wantChange {
				p.wantNone(t, "reloaded")
			}
			p.want(t, "a", "data")
		})
	}
}

func TestCreateDirs(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.file("x/y/z/a", "data")
	f.CreateDirs = true
	p.replace(t, f)
	p.want(t, "x/y/z/a", "data")

	// A refused replacement leaves no directories.
	g := p.file("u/v/a", "data")
	g.CreateDirs, g.Check = true, []string{"false"}
	if _, err := p.try(t.Context(), g); err == nil {
		t.Error("got nil, want the check to fail")
	}
	p.wantNone(t, "u")
}

func TestSymlinks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, d := range []string{"real/sub", "other"} {
		if err := os.MkdirAll(p.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.write(t, "real/a", "old")
	links := map[string]string{
		"absolute": p.path("real/a"),
		"relative": "real/a",
		"chain":    "relative",
		"dangling": "real/new",
		"dir":      "real",
		"deep":     "real/sub",
		"other/up": "../real/up",
		"loop":     "loop",
		"nowhere":  "none/file",
	}
	for name, to := range links {
		if to == "" {
			continue
		}
		if err := os.Symlink(to, p.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"absolute": "real/a", "relative": "real/a", "chain": "real/a",
		"dangling": "real/new", "dir/b": "real/b", "other/up": "real/up",
	} {
		p.replace(t, p.file(name, "via "+name))
		p.want(t, target, "via "+name)
		if to := links[name]; to != "" {
			if got, err := os.Readlink(p.path(name)); err != nil || got != to {
				t.Errorf("%s: got link %q, %v, want %q", name, got, err, to)
			}
		}
	}
	// "deep/.." is not the directory that "deep" stands in.
	f := p.file("", "strange")
	f.Destination = p.dir + "/deep/../beside"
	p.replace(t, f)
	p.want(t, "real/beside", "strange")

	for name, want := range map[string]error{"loop": syscall.ELOOP, "nowhere": fs.ErrNotExist} {
		if _, err := p.try(t.Context(), p.file(name, "x")); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	p.wantClean(t)
}

func TestRefusedDestinations(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "plain", "x")
	if err := os.Mkdir(p.path("dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("mkfifo", p.path("fifo")).Run(); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, destination, want string }{
		{"relative", "etc/file", "not an absolute path"},
		{"empty", "", "not an absolute path"},
		{"directory", p.path("dir"), "is a directory: name a file in it"},
		{"directory by name", p.path("none") + "/", "is a directory: name a file in it"},
		{"fifo", p.path("fifo"), "is not a regular file"},
		{"missing directory", p.path("none/a"), "destination directory " + p.path("none") + " does not exist: create it or set create_dirs = true"},
		{"parent is a file", p.path("plain/a"), "is not a directory"},
		{"grandparent is a file", p.path("plain/b/a"), "is not a directory"},
		{"name too long", p.path(strings.Repeat("n", 255)), "file name too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := File{Name: "f", Destination: tt.destination, Data: []byte("data")}
			_, err := p.try(t.Context(), f)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
			p.wantClean(t)
		})
	}
	p.want(t, "plain", "x")
}

func TestSameDestinationTwice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.Symlink("a", p.path("link")); err != nil {
		t.Fatal(err)
	}
	_, err := p.try(t.Context(), p.file("a", "1"), p.file("link", "2"))
	if err == nil || !strings.Contains(err.Error(), "are one file") {
		t.Errorf("got %v, want that they are one file", err)
	}
	p.wantNone(t, "a")
}

func TestUnknownOwner(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.file("a", "x")
	f.User = "jorc-no-such-user"
	if _, err := p.try(t.Context(), f); err == nil || !strings.Contains(err.Error(), "user jorc-no-such-user") {
		t.Errorf("got %v, want the unknown user named", err)
	}
	f.User, f.Group = "", "jorc-no-such-group"
	if _, err := p.try(t.Context(), f); err == nil || !strings.Contains(err.Error(), "group jorc-no-such-group") {
		t.Errorf("got %v, want the unknown group named", err)
	}
	p.wantNone(t, "a")
}

func TestCompare(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "now")
	for _, tt := range []struct {
		name, data, current string
		same                bool
	}{{"a", "now", "now", true}, {"a", "then", "now", false}, {"b", "", "", false}} {
		current, same, err := p.r.Compare(p.file(tt.name, tt.data))
		if err != nil || string(current) != tt.current || same != tt.same {
			t.Errorf("%s with %q: got %q, %v, %v, want %q, %v", tt.name, tt.data, current, same, err, tt.current, tt.same)
		}
	}
	if _, _, err := p.r.Compare(p.file("none/a", "")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: got %v, want fs.ErrNotExist", err)
	}
	p.wantClean(t)
}

// TestConcurrent replaces many units at once, and one unit many times at once.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var wg sync.WaitGroup
	for i := range 20 {
		name := string(rune('a' + i))
		wg.Go(func() {
			for _, data := range []string{"1", "2", "3"} {
				u := Unit{Name: name, Files: []File{p.file(name, data)}}
				if _, err := p.r.Replace(t.Context(), u); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			f := p.file("shared", strings.Repeat(name, 1000+i))
			f.Reload = p.sh("cp shared loaded")
			if _, err := p.try(t.Context(), f); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		p.want(t, string(rune('a'+i)), "3")
	}
	shared, err := os.ReadFile(p.path("shared"))
	if err != nil {
		t.Fatal(err)
	}
	if len(shared) == 0 || !bytes.Equal(shared, bytes.Repeat(shared[:1], len(shared))) {
		t.Errorf("shared: got a mixture: %.40q", shared)
	}
	p.want(t, "loaded", string(shared))
	p.wantClean(t)
}

func TestEndedContext(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write(t, "a", "old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.try(ctx, p.file("a", "new")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	p.want(t, "a", "old")
	p.wantClean(t)
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return durable.InfoOf(info).Inode
}

// BenchmarkReplace is the short way: one file without check and reload, with
// two fsyncs as the floor.
func BenchmarkReplace(b *testing.B) {
	p := newPlace(b)
	data := [2][]byte{bytes.Repeat([]byte("a"), 4000), bytes.Repeat([]byte("b"), 4000)}
	n := 0
	for b.Loop() {
		f := File{Name: "a", Destination: filepath.Join(p.dir, "a"), Data: data[n%2]}
		n++
		out, err := p.try(context.Background(), f)
		if err != nil || len(out.Changed) != 1 {
			b.Fatal(out, err)
		}
	}
}

// BenchmarkEqual is a file that is as it should be.
func BenchmarkEqual(b *testing.B) {
	p := newPlace(b)
	f := p.file("a", strings.Repeat("a", 4000))
	p.replace(b, f)
	for b.Loop() {
		if _, err := p.try(context.Background(), f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFloor is what the kernel needs for a safe replacement.
func BenchmarkFloor(b *testing.B) {
	dir := b.TempDir()
	data := bytes.Repeat([]byte("a"), 4000)
	for b.Loop() {
		f, err := os.Create(filepath.Join(dir, "new"))
		if err != nil {
			b.Fatal(err)
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Sync(), f.Close(), os.Rename(f.Name(), filepath.Join(dir, "a"))); err != nil {
			b.Fatal(err)
		}
		d, err := os.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
