package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		old  *string
		data []byte
		perm fs.FileMode
	}{
		{name: "new file", data: []byte("hello\n"), perm: 0o644},
		{name: "mode beyond the umask", data: []byte("x"), perm: 0o666},
		{name: "replaced", old: new("before"), data: []byte("after"), perm: 0o600},
		{name: "empty", data: nil, perm: 0o640},
		{name: "binary", data: []byte{0, 0xff, 0xfe, '\n'}, perm: 0o644},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if tt.old != nil {
				if err := os.WriteFile(path, []byte(*tt.old), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := WriteFile(path, tt.data, tt.perm); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(tt.data) {
				t.Errorf("content: got %q, want %q", got, tt.data)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != tt.perm {
				t.Errorf("mode: got %v, want %v", got, tt.perm)
			}
			wantNames(t, dir, "file")
		})
	}
}

func TestWriteFileErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		want       error
	}{
		{name: "directory missing", path: filepath.Join(dir, "none", "file"), want: fs.ErrNotExist},
		{name: "parent is a file", path: filepath.Join(dir, "plain", "file"), want: syscall.ENOTDIR},
		{name: "path is a directory", path: filepath.Join(dir, "sub"), want: syscall.EISDIR},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := WriteFile(tt.path, []byte("x"), 0o644)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if again := WriteFile(tt.path, []byte("x"), 0o644); again.Error() != err.Error() {
				t.Errorf("the second time: got %v, want %v", again, err)
			}
			wantNames(t, dir, "plain", "sub")
		})
	}
}

// TestRemoveTemp leaves alone what is being written. It is not parallel: the children of TestHolderWhileForking have
// a copy of its file, and so its lock, until they are another program.
func TestRemoveTemp(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "state.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, temp, err := d.createTemp("state.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(RemoveTemp(dir), RemoveTempOf(filepath.Join(dir, "state.json"))); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, temp, "state.json")
	if err := f.Close(); err != nil { // as the end of its process does
		t.Fatal(err)
	}
	if err := RemoveTempOf(filepath.Join(dir, "other.json")); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, temp, "state.json")
	if err := RemoveTempOf(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, "state.json")
	for _, missing := range []error{RemoveTemp(filepath.Join(dir, "none")), RemoveTempOf(filepath.Join(dir, "none", "x"))} {
		if missing != nil {
			t.Errorf("missing directory: got %v, want nil", missing)
		}
	}
}

// wantNames fails unless dir holds exactly these entries, in order.
func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(entries))
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if len(got) != len(want) {
		t.Fatalf("entries: got %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("entries: got %q, want %q", got, want)
		}
	}
}
