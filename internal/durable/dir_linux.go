package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. Its methods act on names in it, and never on what a
// symbolic link of that name points to.
type Dir struct {
	file *os.File // with O_PATH
	path string
	info Info
}

func openRoot() (*Dir, error) {
	return newDir(retry(func() (int, error) { return unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) }))("/")
}

// newDir makes a Dir of an open file descriptor.
func newDir(fd int, err error) func(path string) (*Dir, error) {
	return func(path string) (*Dir, error) {
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		d := &Dir{file: os.NewFile(uintptr(fd), path), path: path}
		if d.info, err = FileInfo(d.file); err != nil {
			d.Close()
			return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		return d, nil
	}
}

// enter opens the directory name, or reads the symbolic link name. At the end
// of a path it returns neither for anything else.
func (d *Dir) enter(name string, last bool) (next *Dir, link string, err error) {
	if !last || name == ".." {
		next, err = d.openDir(name)
		if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
			return next, "", err
		}
	}
	fd, ferr := retry(func() (int, error) {
		return unix.Openat(d.fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if ferr != nil {
		return nil, "", d.failed("open", name, ferr)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, "", d.failed("stat", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil, "", err // of a parent that is not a directory
	}
	if !trusted(st.Uid) || d.Foreign() {
		return nil, "", foreignLink(d.Join(name), st.Uid, d.info.UID)
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err == nil && (n == 0 || n == len(target)) {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return nil, "", d.failed("readlink", name, err)
	}
	return nil, string(target[:n]), nil
}

func (d *Dir) openDir(name string) (*Dir, error) {
	path := d.Join(name)
	return newDir(retry(func() (int, error) {
		return unix.Openat(d.fd(), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}))(path)
}

func (d *Dir) fd() int { return int(d.file.Fd()) }

// Foreign reports whether a user other than root and jorc's own may replace
// what root or jorc made in the directory.
func (d *Dir) Foreign() bool {
	return !trusted(d.info.UID) || d.info.Mode&(unix.S_IWOTH|unix.S_ISVTX) == unix.S_IWOTH
}

// loose is Foreign, and also reports whether members of a group may do that.
// A user's own group, which has the user's number, has no other members.
func (d *Dir) loose() bool {
	return d.Foreign() || d.info.Mode&(unix.S_IWGRP|unix.S_ISVTX) == unix.S_IWGRP && d.info.GID != d.info.UID
}

// Shared reports whether a user other than root and jorc's own may make names
// in the directory.
func (d *Dir) Shared() bool {
	return !trusted(d.info.UID) || d.info.Mode&(unix.S_IWGRP|unix.S_IWOTH) != 0
}

// Close closes the directory.
func (d *Dir) Close() error { return d.file.Close() }

// Stat returns what name is.
func (d *Dir) Stat(name string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, d.failed("stat", name, err)
	}
	return infoOf(&st), nil
}

// Open opens name with the flags of open(2), and never waits for a pipe. A
// symbolic link is an error that wraps ELOOP.
func (d *Dir) Open(name string, flags int, perm fs.FileMode) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, uint32(perm.Perm()))
	})
	if err != nil {
		return nil, d.failed("open", name, err)
	}
	return os.NewFile(uintptr(fd), d.Join(name)), nil
}

// Rename gives the file from the name to, in place of what has it.
func (d *Dir) Rename(from, to string) error {
	return d.failed("rename", to, unix.Renameat(d.fd(), from, d.fd(), to))
}

// Link gives the file from a second name. A symbolic link is not followed.
func (d *Dir) Link(from, to string) error {
	return d.failed("link", to, unix.Linkat(d.fd(), from, d.fd(), to, 0))
}

// Remove removes a name that is not a directory's.
func (d *Dir) Remove(name string) error {
	return d.failed("remove", name, unix.Unlinkat(d.fd(), name, 0))
}

// RemoveDir removes an empty directory.
func (d *Dir) RemoveDir(name string) error {
	return d.failed("remove", name, unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR))
}

// Mkdir makes a directory, whose mode the umask limits.
func (d *Dir) Mkdir(name string, perm fs.FileMode) error {
	return d.failed("mkdir", name, unix.Mkdirat(d.fd(), name, uint32(perm.Perm())))
}

// Names returns the names of what is in the directory.
func (d *Dir) Names() ([]string, error) {
	f, err := d.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Sync makes renames, creations and removals in the directory survive a crash.
func (d *Dir) Sync() error {
	f, err := d.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer f.Close() // nothing was written through it
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

func (d *Dir) chmod(perm fs.FileMode) error {
	f, err := d.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chmod(perm)
}

// retry repeats a system call that a signal interrupted.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// commit gives the finished file f from the name temp to name, and closes it.
func (d *Dir) commit(f *os.File, temp, name string) error {
	if err := d.Rename(temp, name); err != nil {
		return err
	}
	_ = f.Close() // it is on the disk; until here its lock kept others from removing it
	return nil
}
