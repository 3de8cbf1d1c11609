package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Info is what a name in a directory is: which file, and what users may do with it.
// Infos can be compared.
type Info struct {
	Dev, Inode uint64      // which file it is
	Links      uint64      // how many names it has
	Type       fs.FileMode // 0: a regular file; fs.ModeDir, fs.ModeSymlink, or fs.ModeIrregular for what else there is
	Mode       uint32      // its twelve permission bits
	UID, GID   uint32
	Size       int64
	Modified   int64 // time of the last change of its content, in ns
	Changed    int64 // time of the last change of its content, names or rights, in ns
}

// Space is how much space a file system has.
type Space struct {
	Bytes            uint64 // that jorc may still write
	Files, FilesFree uint64 // inodes; 0 of 0: as many as there is space for
}

// Same reports whether both are the same file.
func (i Info) Same(o Info) bool { return i.Dev == o.Dev && i.Inode == o.Inode }

// Path returns the directory's path, without symbolic links.
func (d *Dir) Path() string { return d.path }

// Join returns the path of a name in the directory.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// ErrNotRegular is the error for what must be a regular file.
var ErrNotRegular = errors.New("is not a regular file")

// OpenRegular is Open for a regular file. A file with several names, in a
// directory where another user may make names, is refused for writing: it may be
// any file of the host.
func (d *Dir) OpenRegular(name string, flags int, perm fs.FileMode) (*os.File, error) {
	if i, err := d.Stat(name); err == nil && i.Type != 0 && i.Type != fs.ModeSymlink {
		return nil, d.failed("open", name, ErrNotRegular) // opening a device can do something
	}
	f, err := d.Open(name, flags&^os.O_TRUNC, perm)
	if err != nil {
		return nil, err
	}
	i, err := FileInfo(f)
	writes := flags&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case err != nil:
	case i.Type != 0:
		err = ErrNotRegular
	case writes && i.Links > 1 && d.Shared():
		err = errHardLink(i.Links)
	case flags&os.O_TRUNC != 0:
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, d.failed("open", name, err)
	}
	return f, nil
}

func errHardLink(names uint64) error {
	return fmt.Errorf("it has %d names (hard links), and another user may have made this one: remove it", names)
}

// ReadFile reads the regular file at path, of at most limit bytes, as OpenRead opens it.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := OpenRead(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("is larger than %d bytes", limit)
	}
	if err != nil {
		var file *fs.PathError
		if errors.As(err, &file) {
			err = file.Err
		}
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, nil
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
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	return p.Dir.OpenRegular(p.Name, flags, perm)
}

func (d *Dir) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: d.Join(name), Err: err}
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
	key := inode{d.info.Dev, d.info.Inode}
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
