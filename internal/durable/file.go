// Package durable writes files so that they survive a crash: whole or not at
// all, and on the disk when the call returns. It never writes through a symbolic
// link that another user controls, and keeps the rights of what it replaces. It
// also holds the lock that keeps two processes off one directory.
package durable

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// TempMark stands in the names of unfinished files.
const TempMark = ".jorc-tmp-"

// WriteFile replaces path by a file that holds data and has exactly the mode
// perm, whatever the umask. When it returns nil the data and the name are on
// the disk; when it returns an error or the process dies, path is as it was.
// The directory must exist. A symbolic link at path is replaced, not followed;
// for links above it see Locate. Errors are *fs.PathError about path: what
// failed again fails with the same words.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return Create(path, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Create is WriteFile for what content writes.
func Create(path string, perm fs.FileMode, content func(io.Writer) error) error {
	p, err := (&walk{}).to(path)
	if err != nil {
		return about(path, err)
	}
	defer p.Dir.Close()
	if err := p.exists(path); err != nil {
		return err
	}
	return about(path, p.Dir.write(p.Name, content, func(f *os.File) error { return f.Chmod(perm) }))
}

// WriteNew makes files in a new directory that no other process uses yet, each with
// exactly its mode. When it returns nil the data and the names are on the disk,
// with one sync of the directory for all of them; the caller makes the directory's
// own name durable. After an error or a crash the directory may hold any part.
func WriteNew(path string, files []NewFile) error {
	d, err := OpenDir(path)
	if err != nil {
		return about(path, err)
	}
	defer d.Close()
	for _, file := range files {
		if err := d.writeNew(file); err != nil {
			return about(d.Join(file.Name), err)
		}
	}
	return about(path, d.Sync())
}

// NewFile is one file that WriteNew makes.
type NewFile struct {
	Name string
	Data []byte
	Perm fs.FileMode
}

func (d *Dir) writeNew(file NewFile) error {
	f, err := d.Open(file.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	if err == nil && file.Perm != 0o600 {
		err = f.Chmod(file.Perm)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Update makes path hold data. A file that does already is not touched; a
// replaced one keeps owner, mode, ACL and extended attributes, and lost names
// the ones that could not be kept; a new one gets the mode perm. Links are followed
// as by Locate.
func Update(path string, data []byte, perm fs.FileMode) (changed bool, lost []string, err error) {
	p, err := Locate(path)
	if err != nil {
		return false, nil, about(path, err)
	}
	defer p.Dir.Close()
	if err := p.exists(path); err != nil {
		return false, nil, err
	}
	a := Attributes{Mode: uint32(perm.Perm()), UID: -1, GID: -1}
	old, err := p.Dir.OpenRegular(p.Name, os.O_RDONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, nil, about(path, err)
	default:
		defer old.Close()
		content, err := io.ReadAll(old)
		if err != nil {
			return false, nil, about(path, err)
		}
		if bytes.Equal(content, data) {
			return false, nil, nil
		}
		if a, lost, err = ReadAttributes(old, p.Dir.Shared()); err != nil {
			return false, nil, about(path, err)
		}
	}
	err = p.Dir.write(p.Name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}, func(f *os.File) error {
		more, err := a.Apply(f)
		lost = append(lost, more...)
		return err
	})
	return err == nil, lost, about(path, err)
}

// exists returns an error unless the place's directory exists and it has a name.
func (p Place) exists(path string) error {
	switch {
	case len(p.Missing) > 0:
		return about(path, syscall.ENOENT)
	case p.Name == "" || p.Name == "..":
		return about(path, syscall.EISDIR)
	}
	return nil
}

// about says that path was not written, without the name of the unfinished
// file, which is another one each time.
func about(path string, err error) error {
	if err == nil {
		return nil
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		err = file.Err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// write replaces name by a new file, which no other user can read before finish
// has set its rights.
func (d *Dir) write(name string, content func(io.Writer) error, finish func(*os.File) error) (err error) {
	f, temp, err := d.createTemp(name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = d.Remove(temp)
		}
	}()
	if err := content(f); err != nil {
		return err
	}
	if err := finish(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := d.commit(f, temp, name); err != nil {
		return err
	}
	return d.Sync()
}

// createTemp creates a file (0600) for what will be called name. It is locked
// as long as it is open, so that RemoveTemp knows which process is dead.
func (d *Dir) createTemp(name string) (f *os.File, temp string, err error) {
	for {
		temp = "." + name + TempMark + rand.Text()[:10]
		f, err = d.Open(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		// Where there are no locks, RemoveTemp removes nothing.
		if errors.Is(flock(f, lockNow), syscall.EWOULDBLOCK) {
			_ = f.Close() // RemoveTemp removes it
			continue
		}
		if i, err := FileInfo(f); err != nil || i.Links > 0 {
			return f, temp, err
		}
		_ = f.Close() // RemoveTemp has removed it
	}
}

// RemoveTemp removes what killed processes left of files that they had not
// finished in a directory. A directory that does not exist is clean.
func RemoveTemp(path string) error {
	d, err := OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	defer d.Close()
	return d.removeTemp("")
}

// RemoveTempOf removes what killed processes left of the file at path.
func RemoveTempOf(path string) error {
	p, err := Locate(path)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	defer p.Dir.Close()
	if len(p.Missing) > 0 {
		return nil
	}
	return p.Dir.removeTemp(p.Name)
}

// removeTemp removes unfinished files of name, or of all names.
func (d *Dir) removeTemp(name string) error {
	all, err := d.Names()
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	var errs []error
	for _, temp := range all {
		of, _, marked := strings.Cut(strings.TrimPrefix(temp, "."), TempMark)
		if marked && temp[0] == '.' && (name == "" || of == name) {
			errs = append(errs, d.removeDead(temp))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// removeDead removes an unfinished file unless a process still writes it.
func (d *Dir) removeDead(temp string) error {
	f, err := d.OpenRegular(temp, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotRegular) || errors.Is(err, syscall.ELOOP) {
		return nil // it is finished, or not jorc's
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock(f, lockNow); err != nil {
		return nil // it is being written
	}
	if err := d.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
