package workflow

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/durable"
)

// Names in the directory of jobs that are no jobs.
const (
	lockName    = "lock"
	reserveName = "reserve"
)

// reserveSize is the room that is kept for writing down how a task ended, in
// bytes: a task begins only when there is that much.
const reserveSize = 256 << 10

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// ensureReserve makes sure that the end of a task can be written down, also
// when its own output fills the disk.
func (r *Runner) ensureReserve() error {
	path := filepath.Join(r.jobs, reserveName)
	if info, err := os.Stat(path); err == nil && info.Size() == reserveSize {
		return nil
	}
	err := allocate(path)
	if err != nil {
		_ = os.Remove(path) // a part of it is no use
		return fmt.Errorf("no room to write down how a task ends, so none was begun: %w: free some space", err)
	}
	return nil
}

func allocate(path string) error {
	f, err := durable.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveSize)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		if _, err = f.WriteAt(make([]byte, reserveSize), 0); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// freeReserve gives the room free; it tells whether there was any.
func (r *Runner) freeReserve() bool { return os.Remove(filepath.Join(r.jobs, reserveName)) == nil }
