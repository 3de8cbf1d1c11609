//go:build system

package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// TestOpenRead: a link leads only to what root or jorc's own user controls, on a way
// that no other user controls.
func TestOpenRead(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	var errs []error
	do := func(all ...error) { errs = append(errs, all...) }
	dir := func(name string, mode os.FileMode, uid, gid int) {
		do(os.Mkdir(at(name), 0o755), os.Chown(at(name), uid, gid), os.Chmod(at(name), mode))
	}
	file := func(name string, uid int) {
		do(os.WriteFile(at(name), []byte("text"), 0o600), os.Chown(at(name), uid, uid))
	}
	link := func(to, name string, uid int) {
		do(os.Symlink(strings.ReplaceAll(to, "ROOT", root), at(name)), os.Lchown(at(name), uid, uid))
	}
	dir("home", 0o755, 1000, 1000)
	dir("etc", 0o755, 0, 0)
	dir("group", 0o775, 0, 1000)
	dir("own", 0o775, 0, 0) // of root's own group
	dir("all", 0o777, 0, 0)
	dir("sticky", 0o777|os.ModeSticky, 0, 0)
	dir("home/root", 0o755, 0, 0)
	for _, name := range []string{"secret", "etc/a", "group/a", "own/a", "all/a", "sticky/a", "home/root/a"} {
		file(name, 0)
	}
	for _, name := range []string{"home/a", "etc/theirs", "sticky/theirs"} {
		file(name, 1000)
	}
	link("ROOT/secret", "home/link", 1000)
	link("ROOT/secret", "home/roots", 0)
	link("ROOT", "home/up", 1000)
	link("ROOT/secret", "sticky/link", 1000)
	link("../secret", "etc/ok", 0)
	link("../own/a", "etc/own", 0)
	link("ROOT/sticky/a", "etc/sticky", 0)
	link("ok", "etc/chain", 0)
	link("ROOT/etc", "dir", 0)
	link("ROOT/home/a", "etc/to-home", 0)
	link("theirs", "etc/to-theirs", 0)
	link("ROOT/sticky/theirs", "etc/to-sticky", 0)
	link("ROOT/home/link", "etc/to-link", 0)
	link("ROOT/group/a", "etc/to-group", 0)
	link("ROOT/all/a", "etc/to-all", 0)
	link("ROOT/home/root/a", "etc/to-root-in-home", 0)
	link("a", "home/root/link", 0)
	link("ROOT/home", "homes", 0)
	link("none", "etc/dangling", 0)
	do(os.Link(at("secret"), at("home/hard")), os.Link(at("etc/a"), at("etc/hard")))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"home/a", "etc/a", "etc/theirs", "group/a", "all/a", "sticky/theirs", "home/root/a", "etc/ok", "etc/own", "etc/sticky", "etc/chain", "dir/ok", "etc/hard"} {
		if data, err := durable.ReadFile(at(name), 4); err != nil || string(data) != "text" {
			t.Errorf("%s: got %q, %v, want it read", name, data, err)
		}
	}
	for name, want := range map[string]string{
		"home/link":           "link ROOT/home/link is not followed: it is a link of user 1000 in a directory of user 1000",
		"home/roots":          "link ROOT/home/roots is not followed: it is a link of user 0 in a directory of user 1000",
		"home/up/secret":      "link ROOT/home/up is not followed",
		"sticky/link":         "link ROOT/sticky/link is not followed: it is a link of user 1000",
		"etc/to-home":         "link ROOT/etc/to-home is not followed: directory ROOT/home on the way belongs to user 1000",
		"etc/to-theirs":       "link ROOT/etc/to-theirs is not followed: ROOT/etc/theirs, to which it leads, belongs to user 1000",
		"etc/to-sticky":       "link ROOT/etc/to-sticky is not followed: ROOT/sticky/theirs, to which it leads, belongs to user 1000",
		"etc/to-link":         "link ROOT/home/link is not followed",
		"etc/to-group":        "other users may write to directory ROOT/group on the way",
		"etc/to-all":          "other users may write to directory ROOT/all on the way",
		"etc/to-root-in-home": "directory ROOT/home on the way belongs to user 1000",
		"home/root/link":      "directory ROOT/home on the way belongs to user 1000",
		"homes/a":             "directory ROOT/home on the way belongs to user 1000",
		"home/hard":           "hard links",
	} {
		data, err := durable.ReadFile(at(name), 4)
		if want = strings.ReplaceAll(want, "ROOT", root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want %s", name, data, err, want)
		}
	}
	if _, err := durable.ReadFile(at("etc/dangling"), 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dangling: got %v, want that it does not exist", err)
	}
}
