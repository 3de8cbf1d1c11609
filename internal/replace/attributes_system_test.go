//go:build system

package replace_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/replace"
)

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
	none       = 0xffffffff
)

// acl is a list with an entry for one user beside the usual ones.
func acl(owner, nobody, group, mask, other uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, owner, none}, {2, nobody, 65534}, {4, group, none}, {0x10, mask, none}, {0x20, other, none}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

func getxattr(t *testing.T, path, name string) []byte {
	t.Helper()
	b := make([]byte, 1024)
	n, err := unix.Lgetxattr(path, name, b)
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s of %s: %v (system tests need a file system with ACLs)", name, path, err)
	}
	return b[:n]
}

// TestAttributes: ACL and extended attributes are those of the replaced file.
func TestAttributes(t *testing.T) {
	tests := []struct {
		name   string
		old    []byte // its ACL
		perms  os.FileMode
		def    []byte // of the directory
		want   []byte
		mode   os.FileMode
		absent bool // no file yet
	}{
		{name: "kept", old: acl(6, 6, 0, 6, 0), want: acl(6, 6, 0, 6, 0), mode: 0o660},
		{name: "mask narrowed by perms", old: acl(6, 6, 0, 6, 0), perms: 0o640, want: acl(6, 6, 0, 4, 0), mode: 0o640},
		{name: "group not widened by perms", old: acl(6, 4, 0, 4, 0), perms: 0o664, want: acl(6, 4, 0, 6, 4), mode: 0o664},
		{name: "no ACL, directory has one", mode: 0o604, def: acl(6, 6, 6, 6, 0)},
		{name: "ACL, directory has another", old: acl(6, 4, 0, 4, 0), def: acl(6, 6, 6, 6, 0), want: acl(6, 4, 0, 4, 0), mode: 0o640},
		{name: "new file, directory has one", absent: true, def: acl(6, 6, 6, 6, 0), want: acl(6, 6, 6, 4, 4), mode: 0o644},
	}
	for _, tt := range tests {
		for _, reload := range [][]string{nil, {"true"}, {"false"}} {
			t.Run(tt.name, func(t *testing.T) {
				h := newHouse(t)
				conf := h.root + "/conf"
				if !tt.absent {
					h.ok(os.WriteFile(conf, []byte("old\n"), 0o600), os.Chmod(conf, 0o604), os.Chown(conf, alice, 1234))
					for name, value := range map[string]string{"user.note": "text", "user.empty": "", "security.selinux": "u:r:t:s0"} {
						h.ok(unix.Lsetxattr(conf, name, []byte(value), 0))
					}
				}
				if tt.old != nil {
					h.ok(unix.Lsetxattr(conf, accessACL, tt.old, 0))
				}
				if tt.def != nil {
					h.ok(unix.Lsetxattr(h.root, defaultACL, tt.def, 0))
				}
				out, err := h.r.Replace(t.Context(), replace.Unit{Name: "unit", Files: []replace.File{{
					Name: "f", Destination: conf, Data: []byte("new\n"), Perms: tt.perms, Reload: reload,
				}}})
				if reload != nil && reload[0] == "false" {
					if tt.absent {
						return
					}
					h.want(conf, "old\n")
					if got := getxattr(t, conf, accessACL); !bytes.Equal(got, tt.old) {
						t.Errorf("ACL, rolled back: got %x, want %x", got, tt.old)
					}
					return
				}
				h.ok(err)
				h.want(conf, "new\n")
				if len(out.Lost) != 0 {
					t.Errorf("lost: got %q, want none", out.Lost)
				}
				if got := getxattr(t, conf, accessACL); !bytes.Equal(got, tt.want) {
					t.Errorf("ACL: got %x, want %x", got, tt.want)
				}
				info, err := os.Stat(conf)
				if h.ok(err); info.Mode() != tt.mode {
					t.Errorf("mode: got %v, want %v", info.Mode(), tt.mode)
				}
				if tt.absent {
					return
				}
				if note, label := getxattr(t, conf, "user.note"), getxattr(t, conf, "security.selinux"); string(note) != "text" || string(label) != "u:r:t:s0" {
					t.Errorf("attributes: got %q, %q, want those of the old file", note, label)
				}
				if again, err := h.r.Replace(t.Context(), replace.Unit{Name: "unit", Files: []replace.File{{
					Name: "f", Destination: conf, Data: []byte("new\n"), Perms: tt.perms,
				}}}); err != nil || len(again.Changed)+len(again.Fixed) > 0 {
					t.Errorf("again: got %+v, %v, want nothing to do", again, err)
				}
			})
		}
	}
}

// TestCapabilities belong to a program's content, not to its name.
func TestCapabilities(t *testing.T) {
	h := newHouse(t)
	conf := h.root + "/conf"
	h.ok(os.WriteFile(conf, []byte("old\n"), 0o755))
	capability := make([]byte, 20) // vfs_cap_data, revision 2: none
	binary.LittleEndian.PutUint32(capability, 0x02000000)
	h.ok(unix.Lsetxattr(conf, "security.capability", capability, 0))
	h.ok(h.replace(replace.File{Name: "f", Destination: conf, Data: []byte("new\n")}))
	if got := getxattr(t, conf, "security.capability"); got != nil {
		t.Errorf("got %x, want no capability", got)
	}
}
