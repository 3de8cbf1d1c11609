package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder tells who holds the lock at path, "pid 123", without taking it; empty
// when nobody does, or when there is no such file.
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
		return "", nil // given back: trying it could get in the way of who takes it now
	}
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB) // closing the file gives it back
	switch {
	case err == nil:
		return "", nil // its holder has ended without giving it back
	case errors.Is(err, unix.EWOULDBLOCK):
		return holder(f), nil
	}
	return "", fmt.Errorf("lock %s: %w", path, err)
}
