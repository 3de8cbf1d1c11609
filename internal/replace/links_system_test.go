//go:build system

package replace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/replace"
)

const alice = 1000 // a user who is not trusted

// house is a directory of root with one of alice in it, and with a file that
// only root may read.
type house struct {
	t                          *testing.T
	root, home, secret, vaults string
	state                      string
	r                          *replace.Replacer
}

func newHouse(t *testing.T) *house {
	t.Helper()
	root := t.TempDir()
	h := &house{t: t, root: root, home: root + "/home", secret: root + "/vaults/conf", vaults: root + "/vaults", state: t.TempDir()}
	h.r = replace.New(h.state, nil, hclog.NewNullLogger())
	h.ok(os.Chmod(filepath.Dir(root), 0o755), os.Chmod(root, 0o755), os.Mkdir(h.home, 0o755), os.Chown(h.home, alice, alice))
	h.ok(os.Mkdir(h.vaults, 0o700), os.WriteFile(h.secret, []byte("secret\n"), 0o600))
	return h
}

func (h *house) ok(errs ...error) {
	h.t.Helper()
	if err := errors.Join(errs...); err != nil {
		h.t.Fatal(err)
	}
}

// link makes a symbolic link of alice's.
func (h *house) link(to, name string) {
	h.t.Helper()
	h.ok(os.Symlink(to, name), os.Lchown(name, alice, alice))
}

func (h *house) give(name, data string) {
	h.t.Helper()
	h.ok(os.WriteFile(name, []byte(data), 0o644), os.Chown(name, alice, alice))
}

// wantSafe fails unless the secret file is as it was.
func (h *house) wantSafe() {
	h.t.Helper()
	var st unix.Stat_t
	h.ok(unix.Lstat(h.secret, &st))
	data, err := os.ReadFile(h.secret)
	if err != nil || string(data) != "secret\n" || st.Uid != 0 || st.Gid != 0 || st.Mode != unix.S_IFREG|0o600 {
		h.t.Errorf("root's file: got %q, %v, owner %d:%d, mode %o, want it as it was", data, err, st.Uid, st.Gid, st.Mode)
	}
	entries, err := os.ReadDir(h.vaults)
	if err != nil || len(entries) != 1 {
		h.t.Errorf("root's directory: got %v, %v, want the one file", entries, err)
	}
}

func (h *house) want(name, data string) {
	h.t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != data {
		h.t.Errorf("%s: got %q, %v, want %q", name, got, err, data)
	}
}

func (h *house) file(destination string) replace.File {
	return replace.File{Name: "f", Destination: destination, Data: []byte("new\n"), Perms: 0o644, User: fmt.Sprint(alice)}
}

func (h *house) replace(f replace.File) error {
	_, err := h.r.Replace(h.t.Context(), replace.Unit{Name: "unit", Files: []replace.File{f}})
	return err
}

// refused fails unless err names the link.
func (h *house) refused(err error, link string) {
	h.t.Helper()
	if err == nil || !strings.Contains(err.Error(), "symbolic link "+link+" is not followed") {
		h.t.Errorf("got %v, want the link %s refused", err, link)
	}
}

// TestForeignLinks: a link that another user controls leads jorc nowhere.
func TestForeignLinks(t *testing.T) {
	for name, plant := range map[string]func(h *house) (destination, link string){
		"at the end": func(h *house) (string, string) {
			h.link(h.secret, h.home+"/conf")
			return h.home + "/conf", h.home + "/conf"
		},
		"of root's, in another's directory": func(h *house) (string, string) {
			h.ok(os.Symlink(h.secret, h.home+"/conf"))
			return h.home + "/conf", h.home + "/conf"
		},
		"of another's, in root's directory": func(h *house) (string, string) {
			h.link(h.secret, h.root+"/link")
			return h.root + "/link", h.root + "/link"
		},
		"in a sticky directory": func(h *house) (string, string) {
			h.ok(os.Mkdir(h.root+"/tmp", 0o755), os.Chmod(h.root+"/tmp", 0o777|os.ModeSticky))
			h.link(h.secret, h.root+"/tmp/conf")
			return h.root + "/tmp/conf", h.root + "/tmp/conf"
		},
		"a parent": func(h *house) (string, string) {
			h.link(h.vaults, h.home+"/etc")
			return h.home + "/etc/conf", h.home + "/etc"
		},
		"behind a link of root's": func(h *house) (string, string) {
			h.ok(os.Symlink(h.home+"/etc", h.root+"/etc"))
			h.link(h.vaults, h.home+"/etc")
			return h.root + "/etc/conf", h.home + "/etc"
		},
		"to nowhere": func(h *house) (string, string) {
			h.link(h.vaults+"/other", h.home+"/conf")
			return h.home + "/conf", h.home + "/conf"
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			destination, link := plant(h)
			for _, reload := range [][]string{nil, {"true"}} {
				for _, data := range []string{"new\n", "secret\n"} { // the latter has only its owner changed
					f := h.file(destination)
					f.Reload, f.Data, f.CreateDirs = reload, []byte(data), true
					h.refused(h.replace(f), link)
					h.wantSafe()
				}
			}
			if _, _, err := h.r.Compare(h.file(destination)); err == nil {
				t.Error("compare: got nil, want the link refused")
			}
			if _, err := h.r.Recover(t.Context(), replace.RecoverOptions{Destinations: []string{destination}}); err != nil {
				t.Errorf("recover: %v", err)
			}
			h.wantSafe()
		})
	}
}

// TestHardLink: a name that another user gave to root's file does not make jorc
// give that file away.
func TestHardLink(t *testing.T) {
	for name, data := range map[string]string{"other content": "new\n", "the same content": "secret\n"} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			conf := h.home + "/conf"
			h.ok(os.Link(h.secret, conf))
			f := h.file(conf)
			f.Data = []byte(data)
			h.ok(h.replace(f))
			h.wantSafe()
			h.want(conf, data)
			var st unix.Stat_t
			if h.ok(unix.Lstat(conf, &st)); st.Uid != alice {
				t.Errorf("owner: got %d, want %d", st.Uid, alice)
			}
		})
	}
}

// TestHardLinkedProgram: set-id bits of another program are not given to a
// rendered file.
func TestHardLinkedProgram(t *testing.T) {
	h := newHouse(t)
	h.ok(os.Chmod(h.secret, 0o755|os.ModeSetuid), os.Link(h.secret, h.home+"/conf"))
	h.ok(h.replace(replace.File{Name: "f", Destination: h.home + "/conf", Data: []byte("new\n")}))
	info, err := os.Stat(h.home + "/conf")
	if h.ok(err); info.Mode() != 0o755 {
		t.Errorf("mode: got %v, want no set-id bit", info.Mode())
	}
}

// TestPlantedNames: what another user puts where jorc stages and keeps files is
// removed, not written through.
func TestPlantedNames(t *testing.T) {
	for _, reload := range [][]string{nil, {"true"}, {"false"}} {
		h := newHouse(t)
		conf := h.home + "/conf"
		h.give(conf, "old\n")
		h.link(h.secret, h.home+"/.conf.jorc-new")
		h.ok(os.Link(h.secret, h.home+"/.conf.jorc-old"))
		f := h.file(conf)
		f.Reload = reload
		err := h.replace(f)
		h.wantSafe()
		if want := "new\n"; reload == nil || reload[0] == "true" {
			h.ok(err)
			h.want(conf, want)
		} else {
			h.want(conf, "old\n")
		}
	}
}

// TestSwappedMeanwhile: what another user swaps between jorc's steps leads it
// nowhere.
func TestSwappedMeanwhile(t *testing.T) {
	swap := func(h *house) { // alice's directory becomes a link to root's
		h.ok(os.Mkdir(h.home+"/sub2", 0o755), os.Remove(h.home+"/sub2"), os.Rename(h.home+"/sub", h.home+"/sub2"))
		h.link(h.vaults, h.home+"/sub")
	}
	for _, reload := range []string{"", "true", "false"} {
		t.Run("directory, reload "+reload, func(t *testing.T) {
			h := newHouse(t)
			h.ok(os.Mkdir(h.home+"/sub", 0o755), os.Chown(h.home+"/sub", alice, alice))
			h.give(h.home+"/sub/conf", "old\n")
			f := h.file(h.home + "/sub/conf")
			if reload != "" {
				f.Reload = []string{reload}
			}
			_, err := h.r.Replace(t.Context(), replace.Unit{Name: "unit", Files: []replace.File{f}, Gate: func(context.Context) (func(), error) {
				swap(h)
				return nil, nil
			}})
			want := "new\n"
			if reload == "false" {
				want = "old\n"
			} else {
				h.ok(err)
			}
			h.wantSafe()
			h.want(h.home+"/sub2/conf", want)
		})
	}
	t.Run("staged file", func(t *testing.T) {
		h := newHouse(t)
		h.give(h.home+"/conf", "old\n")
		f := h.file(h.home + "/conf")
		f.Check = []string{"ln", "-sf", h.secret, "{{.Staged}}"}
		if err := h.replace(f); err == nil || !strings.Contains(err.Error(), "another process has replaced") {
			t.Errorf("got %v, want the swap noticed", err)
		}
		h.wantSafe()
		h.want(h.home+"/conf", "old\n")
	})
	t.Run("journal", func(t *testing.T) {
		h := newHouse(t)
		h.ok(os.Mkdir(h.home+"/sub", 0o755), os.Chown(h.home+"/sub", alice, alice))
		h.give(h.home+"/sub/conf", "old\n")
		f := h.file(h.home + "/sub/conf")
		f.Reload = []string{"sh", "-c", "touch " + h.root + "/begun; sleep 60"}
		done := make(chan error)
		go func() { done <- h.replace(f) }()
		for _, err := os.Stat(h.root + "/begun"); err != nil; _, err = os.Stat(h.root + "/begun") {
			select {
			case err := <-done:
				t.Fatal(err)
			default:
			}
		}
		h.r.Abandon()
		if err := <-done; !errors.Is(err, replace.ErrAbandoned) {
			t.Fatalf("got %v, want ErrAbandoned", err)
		}
		swap(h)
		h.ok(os.WriteFile(h.secret, []byte("new\n"), 0o600), os.Link(h.secret, h.vaults+"/.conf.jorc-old"))
		h.r = replace.New(h.state, nil, hclog.NewNullLogger())
		_, err := h.r.Recover(t.Context(), replace.RecoverOptions{Destinations: []string{f.Destination}})
		h.refused(err, h.home+"/sub")
		h.ok(os.Remove(h.vaults+"/.conf.jorc-old"), os.WriteFile(h.secret, []byte("secret\n"), 0o600))
		h.wantSafe()
	})
}

// TestRootsLinks work as ever.
func TestRootsLinks(t *testing.T) {
	h := newHouse(t)
	h.give(h.home+"/conf", "old\n")
	h.ok(os.Symlink("vaults", h.root+"/etc"), os.Symlink(h.home+"/conf", h.root+"/resolv.conf"))
	f := h.file(h.root + "/etc/conf")
	f.User, f.Perms = "", 0
	h.ok(h.replace(f), h.replace(h.file(h.root+"/resolv.conf")))
	h.want(h.secret, "new\n")
	h.want(h.home+"/conf", "new\n")
	for _, link := range []string{"/etc", "/resolv.conf"} {
		if _, err := os.Readlink(h.root + link); err != nil {
			t.Error(err)
		}
	}
}
