package replace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	permBits   = 0o7777
	maxLinks   = 40 // as the kernel
	stagedMark = ".jorc-new"
	backupMark = ".jorc-old"
)

// target is where a File really goes.
type target struct {
	path string
	stat *unix.Stat_t // nil when there is no file yet
}

// stagedPath and backupPath are dot-files beside the target: no include glob
// matches them, and renaming them stays on one file system.
func stagedPath(target string) string { return beside(target, stagedMark) }
func backupPath(target string) string { return beside(target, backupMark) }

func beside(target, mark string) string {
	dir, base := filepath.Split(target)
	return dir + "." + base + mark
}

// locate finds f's target and refuses what cannot be one.
func locate(f File) (target, error) {
	if !filepath.IsAbs(f.Destination) {
		return target{}, fmt.Errorf("destination %q is not an absolute path", f.Destination)
	}
	if strings.HasSuffix(f.Destination, "/") {
		return target{}, fmt.Errorf("destination %s is a directory: name a file in it", f.Destination)
	}
	path, err := follow(f.Destination)
	if err != nil {
		return target{}, ioError("look at", f.Destination, err)
	}
	var st unix.Stat_t
	err = unix.Lstat(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return target{path: path}, checkParent(f, filepath.Dir(path))
	case errors.Is(err, unix.ENOTDIR):
		return target{}, fmt.Errorf("destination %s: a parent of it is not a directory: %w", f.Destination, err)
	case err != nil:
		return target{}, ioError("look at", f.Destination, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return target{path: path, stat: &st}, nil
	case unix.S_IFDIR:
		return target{}, fmt.Errorf("destination %s is a directory: name a file in it", f.Destination)
	default:
		return target{}, fmt.Errorf("destination %s is not a regular file", f.Destination)
	}
}

// follow resolves symlinks at the end of path. What they point to need not
// exist.
func follow(path string) (string, error) {
	if clean := filepath.Clean(path); clean != path {
		// A ".." behind a symlink is not what it looks like.
		dir, base := filepath.Split(path)
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil || base == ".." || base == "." {
			resolved, base = filepath.Split(clean)
		}
		path = filepath.Join(resolved, base)
	}
	for range maxLinks {
		link, err := os.Readlink(path)
		if err != nil {
			// Not a link, or not there: the caller will see.
			return path, nil
		}
		if !filepath.IsAbs(link) {
			link = filepath.Dir(path) + "/" + link
		}
		dir, base := filepath.Split(link)
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return "", fmt.Errorf("symlink %s: %w", path, err)
		}
		path = filepath.Join(dir, base)
	}
	return "", unix.ELOOP
}

func checkParent(f File, dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.CreateDirs {
			return nil
		}
		return fmt.Errorf("destination directory %s does not exist: create it or set create_dirs = true: %w", dir, fs.ErrNotExist)
	case err != nil:
		return ioError("look at", f.Destination, err)
	case !info.IsDir():
		return fmt.Errorf("destination %s: %s is not a directory: %w", f.Destination, dir, unix.ENOTDIR)
	}
	return nil
}

// holds says whether the target has exactly this content.
func (t target) holds(data []byte) (bool, error) {
	if t.stat == nil || t.stat.Size != int64(len(data)) {
		return false, nil
	}
	current, err := os.ReadFile(t.path)
	return bytes.Equal(current, data), err
}

// attributes are a file's mode and owner; an owner of -1 is left alone.
type attributes struct {
	mode     uint32
	uid, gid int
}

// want is what the file must have: configured, else as it is, else the default.
func (t target) want(f File) (attributes, error) {
	a := attributes{mode: 0o644, uid: -1, gid: -1}
	if t.stat != nil {
		a = attributes{mode: uint32(t.stat.Mode) & permBits, uid: int(t.stat.Uid), gid: int(t.stat.Gid)}
	}
	if f.Perms != 0 {
		a.mode = uint32(f.Perms) & permBits
	}
	var err error
	if f.User != "" {
		if a.uid, err = lookup(f.User, "user", userID); err != nil {
			return a, err
		}
	}
	if f.Group != "" {
		if a.gid, err = lookup(f.Group, "group", groupID); err != nil {
			return a, err
		}
	}
	return a, nil
}

// of says whether a file has these attributes already.
func (a attributes) of(st *unix.Stat_t) bool {
	return uint32(st.Mode)&permBits == a.mode && a.ownerOf(st)
}

func (a attributes) ownerOf(st *unix.Stat_t) bool {
	return (a.uid < 0 || a.uid == int(st.Uid)) && (a.gid < 0 || a.gid == int(st.Gid))
}

// apply sets owner, then mode: a change of owner clears set-id bits.
func (a attributes) apply(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if !a.ownerOf(&st) {
		if err := f.Chown(a.uid, a.gid); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(f.Fd()), a.mode)
}

// fix gives a file with the right content the right attributes.
func (t target) fix(a attributes) error {
	f, err := os.OpenFile(t.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	if err := a.apply(f); err != nil {
		return err
	}
	return f.Sync()
}

func lookup(name, kind string, id func(string) (string, error)) (int, error) {
	s, err := id(name)
	if err != nil {
		s = name // a number without an entry is as good
	}
	n, convErr := strconv.ParseUint(s, 10, 31)
	if convErr != nil {
		return -1, fmt.Errorf("%s %s: %w", kind, name, errors.Join(err, convErr))
	}
	return int(n), nil
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
