// Package durable writes files so that they survive a crash: whole or not at
// all, and on the disk when the call returns. It also holds the lock that
// keeps two processes off one directory.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempMark stands in the names of unfinished files.
const tempMark = ".jorc-tmp-"

// WriteFile replaces path by a file that holds data and has exactly the mode
// perm, whatever the umask. When it returns nil the data and the name are on
// the disk; when it returns an error or the process dies, path is as it was.
// The directory must exist. Errors are *fs.PathError about path: what failed
// again fails with the same words.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	temp, err := writeTemp(dir, base, data, perm)
	if err != nil {
		return about(path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return about(path, err)
	}
	if err := SyncDir(dir); err != nil {
		return about(path, err)
	}
	return nil
}

// about says that path was not written, without the name of the unfinished
// file, which is another one each time.
func about(path string, err error) error {
	var file *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &file):
		err = file.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// writeTemp leaves a synced file beside the final one, or nothing.
func writeTemp(dir, base string, data []byte, perm fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(dir, "."+base+tempMark+"*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	// CreateTemp's mode is 0600: nobody else reads the data before the mode is right.
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	if err := f.Chmod(perm); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// RemoveTemp removes what a killed WriteFile left in dir. Call it at the start,
// before anything writes there. A directory that does not exist is clean.
func RemoveTemp(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.Contains(e.Name(), tempMark) || e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}
