package replace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// renameAll puts every staged file in its place. Files that are there already
// are left alone.
func (r *Replacer) renameAll(j *journal) error {
	for i := range j.Files {
		f := &j.Files[i]
		r.step("rename")
		err := f.rename(stagedName(f.name()), f.name())
		if errors.Is(err, fs.ErrNotExist) {
			if done, nerr := f.isNew(f.name()); nerr == nil && done {
				continue
			}
		}
		if err != nil {
			return ioError("replace", f.Destination, err)
		}
	}
	r.step("renamed")
	return r.syncTargets(j)
}

// syncTargets makes what was renamed, linked and removed beside the targets
// last. A directory that is gone has nothing to keep.
func (r *Replacer) syncTargets(j *journal) error {
	synced := make(map[string]bool, len(j.Files))
	for i := range j.Files {
		f := &j.Files[i]
		if f.dir == nil || synced[f.dir.Path()] {
			continue
		}
		synced[f.dir.Path()] = true
		if err := r.dirs.Sync(f.dir); err != nil {
			return ioError("sync directory of", f.Destination, err)
		}
	}
	return nil
}

// finish reloads a unit whose files are all new, and goes back when that
// fails. The journal is gone afterwards, unless going back failed: then it
// stays for the next try. It stays after Abandon, too.
func (r *Replacer) finish(ctx context.Context, j *journal, out *Outcome) error {
	begin := time.Now()
	defer func() { out.Reloading += time.Since(begin) }()
	for i, job := range j.Reloads {
		r.step("reload")
		res, err := r.run(ctx, job)
		r.step("reloaded")
		if err == nil && res.OK() {
			out.Reloaded = append(out.Reloaded, job.Args)
			r.passed("reload", job.File)
			continue
		}
		if r.life.Err() != nil {
			return fmt.Errorf("reload of %s: %w", job.File, ErrAbandoned)
		}
		shown, kept := r.withhold("reload", job.File, j.private(), res)
		rerr := &ReloadError{File: job.File, Command: job.Args, Result: shown, Kept: kept, Err: err}
		out.Reloaded = nil
		rerr.RolledBack, rerr.Rollback = r.rollBack(ctx, j, j.Reloads[:i+1])
		out.RolledBack = rerr.RolledBack
		return rerr
	}
	for i := range j.Files {
		out.Changed = append(out.Changed, j.Files[i].Destination)
	}
	return r.close(j, true)
}

// errLost says that there is nothing left to put back; trying again would not
// help.
var errLost = errors.New("its backup is gone, the new content stays")

// rollBack puts the previous content back and reloads it where the new one
// may have been seen.
func (r *Replacer) rollBack(ctx context.Context, j *journal, reloads jobs) (done bool, err error) {
	lost, err := r.undo(j)
	if err != nil {
		return false, errors.Join(lost, err)
	}
	errs := []error{lost}
	for _, job := range reloads {
		r.step("roll back: reload")
		res, err := r.run(ctx, job)
		if r.life.Err() != nil {
			return false, errors.Join(lost, fmt.Errorf("reload of the previous content of %s: %w", job.File, ErrAbandoned))
		}
		if err != nil || !res.OK() {
			shown, kept := r.withhold("rollback", job.File, j.private(), res)
			errs = append(errs, fmt.Errorf("reload of the previous content: %w", &failure{job.Args, shown, kept, err}))
		}
	}
	return lost == nil, errors.Join(append(errs, r.close(j, false))...)
}

// undo puts back what was there before wherever the new content is. Files
// that hold anything else are left alone. It may be repeated after err; lost
// is what repeating would not change.
func (r *Replacer) undo(j *journal) (lost, err error) {
	for i := range j.Files {
		f := &j.Files[i]
		ferr := r.undoFile(f)
		switch {
		case ferr == nil:
		case errors.Is(ferr, errLost):
			lost = errors.Join(lost, ioError("put back", f.Destination, ferr))
		default:
			err = errors.Join(err, ioError("put back", f.Destination, ferr))
		}
	}
	err = errors.Join(err, r.syncTargets(j))
	r.step("roll back: files are back")
	return lost, err
}

func (r *Replacer) undoFile(f *fileEntry) error {
	replaced, err := f.isNew(f.name())
	if err != nil {
		return err
	}
	// A staged file must go first: with it and old targets, a crash would look like one before the renames.
	if err := f.remove(stagedName(f.name())); err != nil || !replaced {
		return err
	}
	r.step("roll back: file")
	if !f.Existed {
		return f.remove(f.name())
	}
	err = f.rename(backupName(f.name()), f.name())
	if errors.Is(err, fs.ErrNotExist) {
		return errLost
	}
	return err
}
