package converge

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/text"
)

func TestVersionFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "deep", "down", "version")
	_, err := ReadVersionFile(file)
	clustertest.WantIs(t, "no file", err, cluster.ErrNoVersion)
	if err := WriteVersionFile(file, "v1"); err != nil {
		t.Fatal(err)
	}
	if v, err := ReadVersionFile(file); v != "v1" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
	before := inode(t, file)
	if err := WriteVersionFile(file, "v1"); err != nil || !os.SameFile(before, inode(t, file)) {
		t.Errorf("the same version was written again: %v", err)
	}
	if err := WriteVersionFile(file, "v2"); err != nil || os.SameFile(before, inode(t, file)) {
		t.Errorf("another version was written into the old file: %v", err)
	}
	clustertest.WantIs(t, "a bad name", WriteVersionFile(file, "a/b"), text.ErrName)
	for _, test := range []struct {
		content string
		want    error
		version string
	}{
		{"", cluster.ErrNoVersion, ""},
		{" \n\n", cluster.ErrNoVersion, ""},
		{"v3", nil, "v3"},
		{"  v3 \r\n", nil, "v3"},
		{"v3\nv4\n", cluster.ErrVersionFile, ""},
		{"\x00\x01\xff", cluster.ErrVersionFile, ""},
		{strings.Repeat("x", 1<<20), cluster.ErrVersionFile, ""},
	} {
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := ReadVersionFile(file)
		clustertest.WantIs(t, "reading rubbish", err, test.want)
		if v != test.version {
			t.Errorf("%.20q is version %q", test.content, v)
		}
	}
	_, err = ReadVersionFile(t.TempDir())
	if err == nil {
		t.Error("a directory is read")
	}
	if err := WriteVersionFile(filepath.Join(file, "version"), "v1"); err == nil {
		t.Error("a file is taken for a directory")
	}
}

func inode(t *testing.T, file string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
