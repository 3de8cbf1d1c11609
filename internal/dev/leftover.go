package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/durable"
)

// A session that is killed cannot remove its directory. The next session does: the lock in
// a directory shows that no process uses it, and process IDs with their start times and
// the boot name the children that were its own.

const (
	lockName      = "dev.lock"
	processSuffix = ".pid"
	dirPrefix     = "jorc-dev-"
	newPrefix     = "jorc-dev.new-" // until it is locked
	abandonedIn   = time.Hour       // a directory that is still not locked then never will be
	killWithin    = 10 * time.Second
)

// processID names one process of one boot.
type processID struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // see command.StartTime
	Boot  string `json:"boot"`
}

// saveProcess records a process in a file.
func saveProcess(file string, pid int) error {
	return writeJSON(file, processID{PID: pid, Start: command.StartTime(pid), Boot: durable.BootID()})
}

// endLeftovers ends the processes that a killed session recorded in dir and in the directories of
// its hosts. The caller has the lock of dir.
func endLeftovers(dir string) error {
	var errs []error
	for _, pattern := range []string{"*", "*/*"} {
		files, err := fs.Glob(os.DirFS(dir), pattern+processSuffix)
		errs = append(errs, err)
		for _, file := range files {
			errs = append(errs, endLeftover(filepath.Join(dir, file)))
		}
	}
	return errors.Join(errs...)
}

// endLeftover ends the process that is recorded in a file.
func endLeftover(file string) error {
	data, err := os.ReadFile(file)
	var p processID
	if err != nil || json.Unmarshal(data, &p) != nil || p.PID <= 1 || p.Start == "" || p.Boot != durable.BootID() {
		return err // it names no process of this boot
	}
	if err := command.Kill(p.PID, func() bool { return command.StartTime(p.PID) == p.Start }, killWithin); err != nil {
		return fmt.Errorf("end process %d of a jorc dev that was killed: %w", p.PID, err)
	}
	return nil
}

// removeLeftovers removes what sessions of this user that were killed left in the directory for
// temporary files. It touches no directory that is in use.
func removeLeftovers(temp string) error {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		unlocked := strings.HasPrefix(e.Name(), newPrefix)
		if !e.IsDir() || !unlocked && !strings.HasPrefix(e.Name(), dirPrefix) {
			continue
		}
		info, err := e.Info()
		if err != nil || int(durable.InfoOf(info).UID) != os.Geteuid() || unlocked && time.Since(info.ModTime()) < abandonedIn {
			continue
		}
		errs = append(errs, removeLeftover(filepath.Join(temp, e.Name())))
	}
	return errors.Join(errs...)
}

func removeLeftover(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, lockName)); err != nil && !strings.HasPrefix(filepath.Base(dir), newPrefix) {
		return nil // not a session's
	}
	lock, err := durable.TryLock(filepath.Join(dir, lockName))
	switch {
	case errors.Is(err, durable.ErrLocked), errors.Is(err, fs.ErrNotExist): // in use, or removed meanwhile
		return nil
	case err != nil:
		return err
	}
	err = endLeftovers(dir)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	return errors.Join(err, lock.Unlock())
}

// lockedDirectory creates a temporary directory and takes its lock before it gets the
// name under which other sessions look for leftovers.
func lockedDirectory(temp string) (dir string, lock *durable.Lock, err error) {
	unlocked, err := os.MkdirTemp(temp, newPrefix)
	if err != nil {
		return "", nil, err
	}
	if lock, err = durable.TryLock(filepath.Join(unlocked, lockName)); err == nil {
		dir = filepath.Join(temp, dirPrefix+strings.TrimPrefix(filepath.Base(unlocked), newPrefix))
		if err = os.Rename(unlocked, dir); err == nil {
			return dir, lock, nil
		}
		err = errors.Join(err, lock.Unlock())
	}
	return "", nil, errors.Join(err, os.RemoveAll(unlocked))
}
