//go:build system

package replace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// tmpfs mounts a file system of 64 KB.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mount: %v (system tests need root)", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves no byte free.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
}

func TestDestinationDiskFull(t *testing.T) {
	p := newPlace(t)
	p.dir = tmpfs(t)
	p.write(t, "a", "old")
	fill(t, p.dir)
	f := p.file("a", "new")
	f.Reload = p.sh("test -s a")
	_, err := p.try(t.Context(), f)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v, want ENOSPC with its remedy", err)
	}
	p.want(t, "a", "old")
	p.wantClean(t)

	empty(t, p.dir)
	p.replace(t, f)
	p.want(t, "a", "new")
	p.wantClean(t)
}

// TestRollBackOnFullDisk fills the disk while the reload runs: going back must
// not need space.
func TestRollBackOnFullDisk(t *testing.T) {
	p := newPlace(t)
	p.dir = tmpfs(t)
	old := strings.Repeat("old\n", 2000)
	p.write(t, "a", old)
	p.r.hook = func(step string) {
		if step == "reload" {
			fill(t, p.dir)
		}
	}
	f := p.file("a", "new")
	f.Reload = p.sh("! grep -q new a")
	var rerr *ReloadError
	if _, err := p.try(t.Context(), f); !errors.As(err, &rerr) || !rerr.RolledBack || rerr.Rollback != nil {
		t.Errorf("got %v, want it rolled back", err)
	}
	p.want(t, "a", old)
	p.wantClean(t)
}

func TestStateDiskFull(t *testing.T) {
	p := newPlace(t)
	p.state = tmpfs(t)
	p.r = New(p.state, nil, hclog.NewNullLogger())
	p.write(t, "a", "old")
	if err := os.Mkdir(filepath.Join(p.state, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, p.state)
	f := p.file("a", "new")
	f.Reload = p.sh("touch reloaded")
	_, err := p.try(t.Context(), f)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("got %v, want ENOSPC and that nothing was changed", err)
	}
	p.want(t, "a", "old")
	p.wantNone(t, "reloaded")
	empty(t, p.state)
	p.wantClean(t)

	// A file that needs no journal does not mind.
	fill(t, p.state)
	f.Reload = nil
	p.replace(t, f)
	p.want(t, "a", "new")
}

func TestReadOnlyDirectory(t *testing.T) {
	p := newPlace(t)
	p.write(t, "a", "old")
	if err := unix.Mount(p.dir, p.dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mount: %v (system tests need root)", err)
	}
	defer func() {
		if err := unix.Unmount(p.dir, 0); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Mount("", p.dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := p.try(t.Context(), p.file("a", "new"))
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "make it writable, under systemd with ReadWritePaths=") {
		t.Errorf("got %v, want EROFS with its remedy", err)
	}
	p.want(t, "a", "old")
	p.wantClean(t)

	// Equal bytes need no writing.
	if _, err := p.try(t.Context(), p.file("a", "old")); err != nil {
		t.Errorf("equal bytes: got %v, want nil", err)
	}
}

// TestMountedFile is a single file mounted over, as containers have them.
func TestMountedFile(t *testing.T) {
	p := newPlace(t)
	p.write(t, "a", "old")
	p.write(t, "b", "mounted")
	if err := unix.Mount(p.path("b"), p.path("a"), "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mount: %v (system tests need root)", err)
	}
	defer func() {
		if err := unix.Unmount(p.path("a"), 0); err != nil {
			t.Error(err)
		}
	}()
	for _, reload := range [][]string{nil, p.sh("touch reloaded")} {
		f := p.file("a", "new")
		f.Reload = reload
		_, err := p.try(t.Context(), f)
		if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "mount its directory") {
			t.Errorf("got %v, want EBUSY with its remedy", err)
		}
		p.want(t, "a", "mounted")
		p.wantNone(t, "reloaded")
		p.wantClean(t)
	}
}

func TestOwners(t *testing.T) {
	owner := func(p place) [2]uint32 {
		var st unix.Stat_t
		if err := unix.Stat(p.path("a"), &st); err != nil {
			t.Fatal(err)
		}
		return [2]uint32{st.Uid, st.Gid}
	}
	tests := []struct {
		name        string
		uid, gid    int // of the existing file; -1: none
		user, group string
		want        [2]uint32
	}{
		{name: "new, own", uid: -1, want: [2]uint32{0, 0}},
		{name: "new, configured", uid: -1, user: "daemon", group: "1234", want: [2]uint32{1, 1234}},
		{name: "kept", uid: 1001, gid: 1002, want: [2]uint32{1001, 1002}},
		{name: "user configured", uid: 1001, gid: 1002, user: "4321", want: [2]uint32{4321, 1002}},
		{name: "group configured", uid: 1001, gid: 1002, group: "daemon", want: [2]uint32{1001, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			if tt.uid >= 0 {
				p.write(t, "a", "old")
				if err := os.Chown(p.path("a"), tt.uid, tt.gid); err != nil {
					t.Fatal(err)
				}
			}
			f := p.file("a", "new")
			f.User, f.Group, f.Perms = tt.user, tt.group, 0o4755
			f.Check = append(p.sh(`stat -c %u:%g "$1" >staged`), "{{.Staged}}")
			p.replace(t, f)
			if got := owner(p); got != tt.want {
				t.Errorf("owner: got %v, want %v", got, tt.want)
			}
			info, err := os.Stat(p.path("a"))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := info.Mode(), os.ModeSetuid|0o755; got != want {
				t.Errorf("mode: got %v, want %v", got, want)
			}

			// Equal bytes with another owner: put right, without a new file.
			if tt.user == "" && tt.group == "" {
				return
			}
			before := inode(t, p.path("a"))
			if err := os.Chown(p.path("a"), 7, 8); err != nil {
				t.Fatal(err)
			}
			out := p.replace(t, f)
			if len(out.Fixed) != 1 || len(out.Changed) != 0 || inode(t, p.path("a")) != before {
				t.Errorf("got %+v, want the owner fixed in place", out)
			}
		})
	}
}

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// TestImmutable is a directory that not even root may change (chattr +i).
func TestImmutable(t *testing.T) {
	p := newPlace(t)
	p.write(t, "a", "old")
	d, err := os.Open(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable); err != nil {
		t.Fatal(err)
	}
	_, err = p.try(t.Context(), p.file("a", "new"))
	if cerr := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags); cerr != nil {
		t.Fatal(cerr)
	}
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v, want a permission error", err)
	}
	p.want(t, "a", "old")
	p.wantClean(t)
	p.replace(t, p.file("a", "new"))
}
