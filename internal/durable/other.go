//go:build !linux

package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Outside Linux jorc is the operator's command line: it writes files of its own
// user, in that user's directories. They are replaced as a whole there, too, but no
// other user is kept out of paths, nothing is locked, and renames need not survive
// a power failure.

// Dir is a directory. Its methods act on names in it.
type Dir struct {
	path string
	info Info
}

// Foreign reports whether another user may replace what jorc made in the directory;
// outside Linux that is not known.
func (d *Dir) Foreign() bool { return false }

// Shared reports whether another user may make names in the directory; outside
// Linux that is not known.
func (d *Dir) Shared() bool { return false }

// Close closes the directory.
func (d *Dir) Close() error { return nil }

// Stat returns what name is.
func (d *Dir) Stat(name string) (Info, error) {
	info, err := os.Lstat(d.Join(name))
	if err != nil {
		return Info{}, err
	}
	return InfoOf(info), nil
}

// Open opens name with the flags of os.OpenFile.
func (d *Dir) Open(name string, flags int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(d.Join(name), flags, perm.Perm())
}

// Rename gives the file from the name to, in place of what has it.
func (d *Dir) Rename(from, to string) error { return os.Rename(d.Join(from), d.Join(to)) }

// Link gives the file from a second name.
func (d *Dir) Link(from, to string) error { return os.Link(d.Join(from), d.Join(to)) }

// Remove removes a name that is not a directory's.
func (d *Dir) Remove(name string) error { return os.Remove(d.Join(name)) }

// RemoveDir removes an empty directory.
func (d *Dir) RemoveDir(name string) error { return os.Remove(d.Join(name)) }

// Mkdir makes a directory, whose mode the umask limits.
func (d *Dir) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(d.Join(name), perm.Perm()) }

// Names returns the names of what is in the directory.
func (d *Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Sync does nothing outside Linux.
func (d *Dir) Sync() error { return nil }

func (d *Dir) chmod(perm fs.FileMode) error { return os.Chmod(d.path, perm) }

func (d *Dir) openDir(name string) (*Dir, error) {
	return &Dir{path: d.Join(name)}, nil
}

// commit gives the finished file f from the name temp to name, and closes it:
// Windows does not rename open files.
func (d *Dir) commit(f *os.File, temp, name string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return d.Rename(temp, name)
}

// walk resolves one path.
type walk struct {
	follow bool // a link at the end of the path, too
	strict bool // without a meaning outside Linux
}

func (w *walk) dir(path string) (*Dir, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	full, err := filepath.Abs(path)
	return &Dir{path: full, info: InfoOf(info)}, err
}

func (w *walk) to(path string) (Place, error) {
	if path == "" {
		return Place{}, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return Place{}, err
	}
	if w.follow {
		if d, err := w.dir(full); err == nil {
			return Place{Dir: d}, nil
		}
		if real, err := filepath.EvalSymlinks(full); err == nil {
			full = real
		}
	}
	names := []string{filepath.Base(full)}
	for parent := filepath.Dir(full); ; parent = filepath.Dir(parent) {
		d, err := w.dir(parent)
		switch {
		case err == nil:
			return Place{Dir: d, Name: names[0], Missing: names[1:]}, nil
		case !errors.Is(err, fs.ErrNotExist) || parent == filepath.Dir(parent):
			return Place{}, err
		}
		names = append([]string{filepath.Base(parent)}, names...)
	}
}

// OpenRead opens the regular file at path for reading. Owners are not checked.
func OpenRead(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular} // opening a device can do something
	}
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// FileInfo returns what an open file is.
func FileInfo(f *os.File) (Info, error) {
	info, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	return InfoOf(info), nil
}

// InfoOf returns the Info of what package os found out about a file: neither which
// file it is nor its owner.
func InfoOf(info fs.FileInfo) Info {
	i := Info{
		Links: 1, Type: info.Mode().Type(), Mode: uint32(info.Mode().Perm()), Size: info.Size(),
		Modified: info.ModTime().UnixNano(), Changed: info.ModTime().UnixNano(),
	}
	if i.Type != 0 && i.Type != fs.ModeDir && i.Type != fs.ModeSymlink {
		i.Type = fs.ModeIrregular
	}
	return i
}

// Attributes are the owner of a file and what users may do with it.
type Attributes struct {
	Mode     uint32
	UID, GID int // -1: as the process makes files
}

// ReadAttributes reads the mode of a file that is going to be replaced.
func ReadAttributes(f *os.File, _ bool) (a Attributes, lost []string, err error) {
	i, err := FileInfo(f)
	return Attributes{Mode: i.Mode, UID: -1, GID: -1}, nil, err
}

// Apply gives a new file the mode.
func (a Attributes) Apply(f *os.File) (lost []string, err error) {
	return nil, Chmod(f, a.Mode)
}

// Chmod sets the permission bits of an open file.
func Chmod(f *os.File, mode uint32) error { return f.Chmod(fs.FileMode(mode).Perm()) }

// OpenName is without a meaning outside Linux.
const OpenName = os.O_RDONLY

// Allocate is not supported outside Linux.
func Allocate(*os.File, int64) error { return errors.ErrUnsupported }

// FreeSpace is not known outside Linux.
func FreeSpace(string) (Space, error) { return Space{}, errors.ErrUnsupported }

// The modes of flock.
const (
	lockNow lockMode = iota
	lockSharedNow
	lockWait
	unlock
)

func flock(*os.File, lockMode) error { return errors.ErrUnsupported }

// uptime is not known.
func uptime() time.Duration { return 0 }
