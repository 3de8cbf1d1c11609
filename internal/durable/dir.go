package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. Its methods act on names in it, and never on what a
// symbolic link of that name points to.
type Dir struct {
	file *os.File // with O_PATH
	path string
	stat unix.Stat_t
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
		if err := unix.Fstat(fd, &d.stat); err != nil {
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
		return nil, "", &LinkError{Path: d.Join(name), UID: st.Uid, DirUID: d.stat.Uid}
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

// Path returns the directory's path, without symbolic links.
func (d *Dir) Path() string { return d.path }

// Join returns the path of a name in the directory.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// Foreign reports whether a user other than root and jorc's own may replace
// what root or jorc made in the directory.
func (d *Dir) Foreign() bool {
	return !trusted(d.stat.Uid) || d.stat.Mode&(unix.S_IWOTH|unix.S_ISVTX) == unix.S_IWOTH
}

// Shared reports whether a user other than root and jorc's own may make names
// in the directory.
func (d *Dir) Shared() bool {
	return !trusted(d.stat.Uid) || d.stat.Mode&(unix.S_IWGRP|unix.S_IWOTH) != 0
}

// Close closes the directory.
func (d *Dir) Close() error { return d.file.Close() }

// Stat returns what name is.
func (d *Dir) Stat(name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, d.failed("stat", name, err)
	}
	return &st, nil
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

// ErrNotRegular is the error for what must be a regular file.
var ErrNotRegular = errors.New("is not a regular file")

// OpenRegular is Open for a regular file. A file with several names, in a
// directory where another user may make names, is refused for writing: it may be
// any file of the host.
func (d *Dir) OpenRegular(name string, flags int, perm fs.FileMode) (*os.File, error) {
	if st, err := d.Stat(name); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil, d.failed("open", name, ErrNotRegular) // opening a device can do something
	}
	f, err := d.Open(name, flags&^unix.O_TRUNC, perm)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	writes := flags&unix.O_ACCMODE != unix.O_RDONLY
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = ErrNotRegular
	case writes && st.Nlink > 1 && d.Shared():
		err = fmt.Errorf("it has %d names (hard links), and another user may have made this one: remove it", st.Nlink)
	case flags&unix.O_TRUNC != 0:
		err = unix.Ftruncate(int(f.Fd()), 0)
	}
	if err != nil {
		f.Close()
		return nil, d.failed("open", name, err)
	}
	return f, nil
}

// OpenFile opens the regular file at path, as OpenRegular does. Links are
// followed as by Locate.
func OpenFile(path string, flags int, perm fs.FileMode) (*os.File, error) {
	p, err := Locate(path)
	if err != nil {
		return nil, err
	}
	defer p.Dir.Close()
	if len(p.Missing) > 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	return p.Dir.OpenRegular(p.Name, flags, perm)
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

func (d *Dir) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: d.Join(name), Err: err}
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

// SyncDir is Sync for the directory at a path.
func SyncDir(path string) error {
	d, err := OpenDir(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	return d.Sync()
}

// DirSyncer is Dir.Sync for many goroutines: calls for one directory that
// overlap share fsyncs. Every call is covered by an fsync that began after it,
// so a rename done before the call is on the disk when the call returns.
// The zero value is ready; a DirSyncer must not be copied.
type DirSyncer struct {
	mu   sync.Mutex
	dirs map[inode]*dirQueue

	sync func(d *Dir) error // Dir.Sync when nil; tests count here
}

// inode is which directory it is, whatever its path.
type inode struct{ dev, ino uint64 }

// dirQueue is one directory's fsync in flight and the one after it. It exists
// only while an fsync is in flight.
type dirQueue struct {
	next *dirBatch // nil while no caller waits
}

// dirBatch is one fsync and all callers that it covers.
type dirBatch struct {
	turn chan struct{} // closed when the fsync before this one is done
	done chan struct{} // closed when err is set
	err  error
}

// Sync is d.Sync, shared.
func (s *DirSyncer) Sync(d *Dir) error {
	key := inode{d.stat.Dev, d.stat.Ino}
	s.mu.Lock()
	if s.dirs == nil {
		s.dirs = make(map[inode]*dirQueue)
	}
	q, busy := s.dirs[key]
	if !busy {
		q = &dirQueue{}
		s.dirs[key] = q
		s.mu.Unlock()
		return s.lead(d, key, q)
	}
	// The fsync in flight may have begun before the caller's rename: only the next one covers it.
	if b := q.next; b != nil {
		s.mu.Unlock()
		<-b.done
		return b.err
	}
	b := &dirBatch{turn: make(chan struct{}), done: make(chan struct{})}
	q.next = b
	s.mu.Unlock()

	<-b.turn
	b.err = s.lead(d, key, q)
	close(b.done)
	return b.err
}

// lead runs one fsync and hands the directory to the batch that gathered
// meanwhile.
func (s *DirSyncer) lead(d *Dir, key inode, q *dirQueue) error {
	run := s.sync
	if run == nil {
		run = (*Dir).Sync
	}
	err := run(d)

	s.mu.Lock()
	defer s.mu.Unlock()
	if q.next == nil {
		delete(s.dirs, key)
		return err
	}
	close(q.next.turn)
	q.next = nil // it begins now: later callers need the next one
	return err
}
