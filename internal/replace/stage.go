package replace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/durable"
)

// maxStaged is how many files are staged at the same time; more do not speed it up.
const maxStaged = 32

// syncWithin is how long the fsync of a directory may wait for files that are being
// staged. Both go through the file system's journal: interleaved, a hundred files take
// half as long again.
const syncWithin = 50 * time.Millisecond

// staging counts the files that are being staged or wait for a place.
type staging struct {
	places chan struct{}

	mu      sync.Mutex
	running int
	none    chan struct{} // closed when running becomes 0
}

func newStaging() *staging { return &staging{places: make(chan struct{}, maxStaged)} }

// begin waits for a place; end gives it back.
func (s *staging) begin() (end func()) {
	s.mu.Lock()
	if s.running++; s.running == 1 {
		s.none = make(chan struct{})
	}
	s.mu.Unlock()
	s.places <- struct{}{}
	return func() {
		<-s.places
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running--; s.running == 0 {
			close(s.none)
		}
	}
}

// await returns when no file is being staged, after syncWithin at the latest.
func (s *staging) await() {
	s.mu.Lock()
	running, none := s.running, s.none
	s.mu.Unlock()
	if running == 0 {
		return
	}
	late := time.NewTimer(syncWithin)
	defer late.Stop()
	select {
	case <-none:
	case <-late.C:
	}
}

// stage writes the new content beside the target, complete with its attributes
// and on the disk. No other user can read it before these are right.
func (r *Replacer) stage(it *item) (err error) {
	defer r.staging.begin()()
	made, err := it.at.MakeParents(0o755)
	if it.made = made; err != nil {
		return ioError("create directory for", it.Destination, err)
	}
	it.staged, err = r.write(it.at.Dir, stagedName(it.at.Name), func(f *os.File) error {
		if _, err := f.Write(it.Data); err != nil {
			return err
		}
		r.step("write: filled")
		lost, err := it.attr.Apply(f)
		it.lost = append(it.lost, lost...)
		return err
	})
	if err != nil {
		return ioError("stage", it.Destination, err)
	}
	return nil
}

// write makes a new file, where a dead jorc may have left one, or leaves none.
func (r *Replacer) write(d *durable.Dir, name string, fill func(*os.File) error) (info durable.Info, err error) {
	create := func() (*os.File, error) { return d.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) }
	f, err := create()
	if errors.Is(err, fs.ErrExist) { // looking for it first took 6 % of the time of a hundred files
		if err := unlink(d, name); err != nil {
			return info, err
		}
		f, err = create()
	}
	if err != nil {
		return info, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = unlink(d, name)
		}
	}()
	r.step("write: created")
	if err := fill(f); err != nil {
		return info, err
	}
	if err := f.Sync(); err != nil {
		return info, err
	}
	if info, err = durable.FileInfo(f); err != nil {
		return info, err
	}
	return info, f.Close()
}

// backup keeps the previous file under a second name. A hard link costs no
// space, so that the way back cannot fail for want of it; where there are
// none, it is a copy.
func (r *Replacer) backup(it *item) error {
	name := backupName(it.at.Name)
	if err := unlink(it.at.Dir, name); err != nil {
		return err
	}
	err := r.link(it.at.Dir, it.at.Name, name)
	if err == nil || !noLinks(err) {
		return err
	}
	old, err := it.at.Dir.OpenRegular(it.at.Name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer old.Close() // only read
	// Of the file that is copied, which need not be the one that was compared.
	attr, lost, err := durable.ReadAttributes(old, it.at.Dir.Shared())
	if err != nil {
		return err
	}
	_, err = r.write(it.at.Dir, name, func(f *os.File) error {
		if _, err := io.Copy(f, old); err != nil {
			return err
		}
		more, err := attr.Apply(f)
		r.reportLost(it.at.Name, append(lost, more...))
		return err
	})
	return err
}

// noLinks reports whether a file system (or fs.protected_hardlinks) refuses links.
func noLinks(err error) bool {
	for _, e := range []error{syscall.EPERM, syscall.EACCES, syscall.EMLINK, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// verify returns an error when another process has replaced the staged file.
func (it *item) verify() error {
	info, err := it.at.Dir.Stat(stagedName(it.at.Name))
	if err == nil && !info.Same(it.staged) {
		err = fmt.Errorf("another process has replaced %s", it.stagedPath())
	}
	if err != nil {
		return ioError("replace", it.Destination, err)
	}
	return nil
}

// unstage removes what stage made; directories only while they are empty.
func unstage(items []*item) error {
	var errs []error
	for _, it := range items {
		errs = append(errs, unlink(it.at.Dir, stagedName(it.at.Name)))
	}
	for _, it := range items {
		for i := len(it.made) - 1; i >= 0; i-- {
			removeDir(it.made[i]) // another process may use it by now
		}
	}
	return errors.Join(errs...)
}

func removeDir(path string) {
	parent, err := durable.OpenDir(filepath.Dir(path))
	if err != nil {
		return
	}
	defer parent.Close()
	_ = parent.RemoveDir(filepath.Base(path))
}

// unlink removes a file that need not be there.
func unlink(d *durable.Dir, name string) error {
	err := d.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
