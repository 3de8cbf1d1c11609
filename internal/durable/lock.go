package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ErrLocked is wrapped by the error of TryLock when another process (or
// another Lock of this one) holds the lock; the text names its process id.
var ErrLocked = errors.New("locked")

// lockMode is how flock locks a file.
type lockMode int

// Lock is a lock file that is held. The kernel lets go of it when the process
// ends, however it ends.
type Lock struct {
	file *os.File
}

// TryLock takes the lock at path without waiting, creating the file (0644)
// when it is missing. The file holds the holder's process id. The error wraps
// ErrLocked when another process holds it.
func TryLock(path string) (*Lock, error) {
	f, err := OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(f, lockNow); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w: held by %s", path, ErrLocked, holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := writePID(f); err != nil {
		_, _ = flock(f, unlock), f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{file: f}, nil
}

// Unlock gives the lock back. The file stays: removing it would let two
// processes hold two files of one name.
func (l *Lock) Unlock() error {
	err := l.file.Truncate(0)
	// Closing alone would leave it to a child that is just being forked, until that execs.
	return errors.Join(err, flock(l.file, unlock), l.file.Close())
}

// HandOver returns the lock's file for another process: the lock lasts until every
// copy of the file is closed. l must not be used afterwards.
func (l *Lock) HandOver() *os.File { return l.file }

// WaitLock locks an open file until it is closed, as soon as no other process has
// locked it. Where there are no locks, there are no others: it returns at once.
func WaitLock(f *os.File) { _ = flock(f, lockWait) }

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder reads which process holds the lock; that is unknown between its flock and its write.
func holder(f *os.File) string {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid <= 0 {
		return "another process"
	}
	return "pid " + strconv.Itoa(pid)
}

// Holder returns which process holds the lock at path, "pid 123", without taking it; empty
// when none does, or when there is no such file.
func Holder(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("lock: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", path, err)
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", nil // given back: trying it could get in the way of another process
	}
	err = flock(f, lockSharedNow)
	switch {
	case err == nil: // its holder has ended without giving it back
		// As in Unlock, closing alone would leave it to a child that is just being forked.
		if err := flock(f, unlock); err != nil {
			return "", fmt.Errorf("lock %s: %w", path, err)
		}
		return "", nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return holder(f), nil
	}
	return "", fmt.Errorf("lock %s: %w", path, err)
}
