package replace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// item is one File of a unit that has to change.
type item struct {
	File
	target
	attr attributes
	made []string // parents that were created, outermost first
}

// stage writes the new content beside the target, complete with owner and
// mode and on the disk. Nobody else can read it before they are right.
func (r *Replacer) stage(it *item) error {
	if err := r.makeParents(it); err != nil {
		return ioError("create directory for", it.Destination, err)
	}
	err := r.write(stagedPath(it.path), it.attr, func(w io.Writer) error {
		_, err := w.Write(it.Data)
		return err
	})
	if err != nil {
		return ioError("stage", it.Destination, err)
	}
	return nil
}

// write makes a new file at path, where a dead jorc may have left one, or
// leaves none.
func (r *Replacer) write(path string, a attributes, content func(io.Writer) error) (err error) {
	if err := unlink(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = unlink(path)
		}
	}()
	r.step("write: created")
	if err := content(f); err != nil {
		return err
	}
	r.step("write: filled")
	if err := a.apply(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// makeParents creates what is missing above the target.
func (r *Replacer) makeParents(it *item) error {
	if !it.CreateDirs || it.stat != nil {
		return nil
	}
	var missing []string
	dir := filepath.Dir(it.path)
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o755); errors.Is(err, fs.ErrExist) {
			continue // another unit was faster
		} else if err != nil {
			return err
		}
		it.made = append(it.made, missing[i])
		if err := os.Chmod(missing[i], 0o755); err != nil { // whatever the umask
			return err
		}
		if err := r.dirs.SyncDir(filepath.Dir(missing[i])); err != nil {
			return err
		}
	}
	return nil
}

// unstage removes what stage made; directories only while they are empty.
func unstage(items []*item) error {
	var errs []error
	for _, it := range items {
		errs = append(errs, unlink(stagedPath(it.path)))
	}
	for _, it := range items {
		for i := len(it.made) - 1; i >= 0; i-- {
			_ = os.Remove(it.made[i]) // somebody else may use it by now
		}
	}
	return errors.Join(errs...)
}

// unlink removes a file that need not be there.
func unlink(path string) error {
	err := unix.Unlink(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return &fs.PathError{Op: "remove", Path: path, Err: err}
}
