//go:build system

package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jorc/jorc/internal/durable"
)

// TestForeignNames: nothing is written through a link of another user, or
// through a hard link that another user may have made.
func TestForeignNames(t *testing.T) {
	root := t.TempDir()
	home, secret := filepath.Join(root, "home"), filepath.Join(root, "secret")
	link, hard, parent := filepath.Join(home, "link"), filepath.Join(home, "hard"), filepath.Join(home, "root")
	if err := errors.Join(
		os.Mkdir(home, 0o755), os.Chown(home, 1000, 1000), os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, link), os.Link(secret, hard), os.Symlink(root, parent),
	); err != nil {
		t.Fatal(err)
	}
	write := func(path string) error { return durable.WriteFile(path, []byte("x"), 0o644) }
	update := func(path string) error { _, _, err := durable.Update(path, []byte("x"), 0o644); return err }
	lock := func(path string) error { _, err := durable.TryLock(path); return err }
	mkdir := func(path string) error { return durable.MkdirAll(path, 0o755) }
	for _, tt := range []struct {
		name string
		do   func(string) error
		path string
	}{
		{"write below a link", write, parent + "/secret"},
		{"update a link", update, link},
		{"update below a link", update, parent + "/secret"},
		{"lock a link", lock, link},
		{"lock a hard link", lock, hard},
		{"lock below a link", lock, parent + "/secret"},
		{"make a directory below a link", mkdir, parent + "/sub"},
		{"a directory of another user", durable.CheckOwner, home},
	} {
		if err := tt.do(tt.path); err == nil {
			t.Errorf("%s: got nil, want it refused", tt.name)
		}
	}
	// A new file takes the place of the name.
	if err := errors.Join(write(link), update(hard)); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(secret)
	data, rerr := os.ReadFile(secret)
	if err != nil || rerr != nil || info.Mode() != 0o600 || string(data) != "secret" {
		t.Errorf("root's file: got %v, %q, %v, want it as it was", info, data, errors.Join(err, rerr))
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("root's directory: got %v, %v, want nothing new in it", entries, err)
	}
}
