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
	"syscall"
	"time"

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
	Gated   bool        `json:"gated"`             // the unit has a gate
	Private bool        `json:"private,omitempty"` // a file of the unit, also one that is not replaced, was not readable by every user
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
	Backup      bool   `json:"backup,omitempty"` // the previous file is kept

	dir *durable.Dir // Target's; nil when it does not exist
}

func (f *fileEntry) name() string { return filepath.Base(f.Target) }

func newJournal(u Unit, items []*item, private bool) *journal {
	j := &journal{Format: journalFormat, Unit: u.Name, Written: time.Now().UTC(), Gated: u.Gate != nil, Private: private}
	for _, it := range items {
		sum := sha256.Sum256(it.Data)
		j.Files = append(j.Files, fileEntry{
			Destination: it.Destination,
			Target:      it.path,
			Existed:     it.old != nil,
			Size:        int64(len(it.Data)),
			SHA256:      hex.EncodeToString(sum[:]),
			Backup:      it.Backup && it.old != nil,
			dir:         it.at.Dir,
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
	if err := durable.MkdirAll(r.journals, 0o700); err != nil {
		return fmt.Errorf("journal of %s: nothing was changed: %w", j.Unit, err)
	}
	for _, it := range items {
		if it.old == nil {
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

// close ends a transaction whose files are all new or all old: first the
// journal, then what it speaks of. renewed: they are new, so that backups may be kept.
func (r *Replacer) close(j *journal, renewed bool) error {
	r.step("journal: remove")
	if err := r.removeJournal(j.Unit); err != nil {
		return err
	}
	r.step("journal: removed")
	for i := range j.Files {
		f := &j.Files[i]
		if !renewed || !f.Backup {
			continue
		}
		if err := f.rename(backupName(f.name()), f.name()+BackupSuffix); err != nil {
			r.log.Warn("the previous file cannot be kept", "file", f.Destination, "error", err)
		}
	}
	if err := removeBeside(j); err != nil {
		r.log.Warn("a backup stays behind", "unit", j.Unit, "error", err)
	}
	return nil
}

// discard takes back an open that failed.
func (r *Replacer) discard(j *journal) {
	err := errors.Join(r.removeJournal(j.Unit), removeBeside(j))
	if err != nil {
		r.log.Warn("a file of a refused replacement stays behind", "unit", j.Unit, "error", err)
	}
}

func (r *Replacer) removeJournal(unit string) error {
	d, err := durable.OpenDir(r.journals)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal of %s: %w", unit, err)
	}
	defer d.Close()
	err = unlink(d, filepath.Base(r.journalPath(unit)))
	if err == nil {
		err = r.dirs.Sync(d)
	}
	if err != nil {
		return fmt.Errorf("journal of %s: %w", unit, err)
	}
	return nil
}

// removeBeside removes backups and staged files.
func removeBeside(j *journal) error {
	var errs []error
	for i := range j.Files {
		f := &j.Files[i]
		errs = append(errs, f.remove(backupName(f.name())), f.remove(stagedName(f.name())))
	}
	return errors.Join(errs...)
}

// remove removes a name beside the target that need not be there.
func (f *fileEntry) remove(name string) error {
	if f.dir == nil {
		return nil
	}
	return unlink(f.dir, name)
}

// rename gives a file beside the target, or the target itself, another name.
func (f *fileEntry) rename(from, to string) error {
	if f.dir == nil {
		return &fs.PathError{Op: "rename", Path: f.Target, Err: fs.ErrNotExist}
	}
	return f.dir.Rename(from, to)
}

// openDirs opens the directories of a journal that was read. One that is gone
// stays nil.
func (j *journal) openDirs() error {
	for i := range j.Files {
		f := &j.Files[i]
		d, err := durable.OpenDir(filepath.Dir(f.Target))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return ioError("look at", f.Destination, err)
		}
		f.dir = d
	}
	return nil
}

func (j *journal) closeDirs() {
	for i := range j.Files {
		if j.Files[i].dir != nil {
			_ = j.Files[i].dir.Close()
		}
	}
}

// load reads a unit's journal; fs.ErrNotExist when it does not exist.
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
	for i := range j.Files {
		if target := j.Files[i].Target; !filepath.IsAbs(target) {
			return nil, fmt.Errorf("journal %s: target %q is not an absolute path", path, target)
		}
	}
	return j, nil
}

// isNew reports whether the file of a name beside the target has the new
// content, in full.
func (f *fileEntry) isNew(name string) (bool, error) {
	if f.dir == nil {
		return false, nil
	}
	file, err := f.dir.OpenRegular(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, durable.ErrNotRegular) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() // only read
	info, err := file.Stat()
	if err != nil || info.Size() != f.Size {
		return false, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == f.SHA256, nil
}
