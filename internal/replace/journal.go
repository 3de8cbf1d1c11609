package replace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/durable"
)

const journalFormat = 1

// journal says what a unit is about to do. It is on the disk before the first
// rename and until the reload is done; how far things came is read from the
// files themselves.
type journal struct {
	Format  int         `json:"format"`
	Unit    string      `json:"unit"`
	Written time.Time   `json:"written"`
	Gated   bool        `json:"gated"` // the unit has a gate
	Files   []fileEntry `json:"files"`
	Reloads jobs        `json:"reloads"`
}

// fileEntry is one file that is replaced. Its staged file and the backup (a
// hard link to the previous file) are beside Target.
type fileEntry struct {
	Destination string `json:"destination"`
	Target      string `json:"target"`
	Existed     bool   `json:"existed"` // there was a file before
	Size        int64  `json:"size"`    // of the new content
	SHA256      string `json:"sha256"`
}

func newJournal(u Unit, items []*item) *journal {
	j := &journal{Format: journalFormat, Unit: u.Name, Written: time.Now().UTC(), Gated: u.Gate != nil}
	for _, it := range items {
		sum := sha256.Sum256(it.Data)
		j.Files = append(j.Files, fileEntry{
			Destination: it.Destination,
			Target:      it.path,
			Existed:     it.stat != nil,
			Size:        int64(len(it.Data)),
			SHA256:      hex.EncodeToString(sum[:]),
		})
		j.Reloads.add(it.Name, it.Reload, it.ReloadTimeout)
	}
	return j
}

func (r *Replacer) journalPath(unit string) string {
	sum := sha256.Sum256([]byte(unit))
	return filepath.Join(r.journals, hex.EncodeToString(sum[:16])+".json")
}

// open makes the way back, then the journal, both durable.
func (r *Replacer) open(j *journal, items []*item) error {
	if err := os.MkdirAll(r.journals, 0o700); err != nil {
		return fmt.Errorf("journal of %s: nothing was changed: %w", j.Unit, err)
	}
	for _, it := range items {
		if it.stat == nil {
			continue
		}
		r.step("backup")
		if err := r.backup(it); err != nil {
			return ioError("keep the previous content of", it.Destination, err)
		}
	}
	if err := r.syncTargets(j); err != nil {
		return err
	}
	doc, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("journal of %s: %w", j.Unit, err)
	}
	r.step("journal: write")
	if err := durable.WriteFile(r.journalPath(j.Unit), doc, 0o600); err != nil {
		return fmt.Errorf("journal of %s: nothing was changed: %w", j.Unit, err)
	}
	r.step("journal: written")
	return nil
}

// backup keeps the previous file under a second name. A hard link costs no
// space, so that the way back cannot fail for want of it; where there are
// none, it is a copy.
func (r *Replacer) backup(it *item) error {
	path := backupPath(it.path)
	if err := unlink(path); err != nil {
		return err
	}
	err := r.link(it.path, path)
	if err == nil || !noLinks(err) {
		return err
	}
	old, err := os.OpenFile(it.path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }() // only read
	attr := attributes{mode: uint32(it.stat.Mode) & permBits, uid: int(it.stat.Uid), gid: int(it.stat.Gid)}
	return r.write(path, attr, func(w io.Writer) error {
		_, err := io.Copy(w, old)
		return err
	})
}

// noLinks tells a file system (or fs.protected_hardlinks) that refuses links
// from other troubles.
func noLinks(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.EMLINK, unix.ENOSYS, unix.EOPNOTSUPP, unix.EXDEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// close ends a transaction whose files are all new or all old: first the
// journal, then what it speaks of.
func (r *Replacer) close(j *journal) error {
	r.step("journal: remove")
	if err := unlink(r.journalPath(j.Unit)); err != nil {
		return fmt.Errorf("journal of %s: %w", j.Unit, err)
	}
	if err := r.dirs.SyncDir(r.journals); err != nil {
		return fmt.Errorf("journal of %s: %w", j.Unit, err)
	}
	r.step("journal: removed")
	if err := removeBeside(j); err != nil {
		r.log.Warn("a backup stays behind", "unit", j.Unit, "error", err)
	}
	return nil
}

// discard takes back an open that failed.
func (r *Replacer) discard(j *journal) {
	err := errors.Join(unlink(r.journalPath(j.Unit)), removeBeside(j))
	if err != nil {
		r.log.Warn("a file of a refused replacement stays behind", "unit", j.Unit, "error", err)
	}
}

// removeBeside removes backups and staged files.
func removeBeside(j *journal) error {
	var errs []error
	for _, f := range j.Files {
		errs = append(errs, unlink(backupPath(f.Target)), unlink(stagedPath(f.Target)))
	}
	return errors.Join(errs...)
}

// load reads a unit's journal; fs.ErrNotExist when there is none.
func load(path string) (*journal, error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	j := &journal{}
	if err := json.Unmarshal(doc, j); err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	if len(j.Files) == 0 {
		return nil, fmt.Errorf("journal %s names no files", path)
	}
	for _, f := range j.Files {
		if !filepath.IsAbs(f.Target) {
			return nil, fmt.Errorf("journal %s: target %q is not an absolute path", path, f.Target)
		}
	}
	return j, nil
}

// isNew says whether the file at path has the new content, in full.
func (f fileEntry) isNew(path string) (bool, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
		return false, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == f.SHA256, nil
}
