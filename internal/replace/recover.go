package replace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/durable"
)

// What Recover did about a unit.
const (
	Completed  = "completed"   // the new content is in place and loaded
	RolledBack = "rolled back" // the previous content is in place
	Owed       = "owed"        // still to be done: see the error; Replace and the next Recover try again
)

// Recovery is what Recover did about one unit that a crash had interrupted.
type Recovery struct {
	Unit         string
	Destinations []string
	Action       string
	Err          error // *ReloadError, the gate's or a wrapped I/O error
}

// RecoverOptions tell Recover what the journal does not know.
type RecoverOptions struct {
	// Destinations that are configured now: staged files and backups that a
	// crash left beside them are removed.
	Destinations []string
	// Gate is asked before a unit that had a gate is reloaded. Optional.
	Gate func(ctx context.Context, unit string) (release func(), err error)
	// Back reports whether a unit is to be rolled back, though it could be completed.
	// Optional.
	Back func(unit string) bool
}

// Recover repairs what a crash left; call it before the first Replace.
// Units of which every file is new, or can be made so, are completed and
// reloaded; when that fails, a staged file is damaged or o.Back says so, they are rolled back.
// The error joins those of all units; they do not keep each other.
func (r *Replacer) Recover(ctx context.Context, o RecoverOptions) ([]Recovery, error) {
	paths, err := filepath.Glob(filepath.Join(r.journals, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	var done []Recovery
	errs := []error{durable.RemoveTemp(r.journals)}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		rec, err := r.recoverPath(ctx, path, o)
		if rec.Action != "" {
			done = append(done, rec)
		}
		errs = append(errs, err)
	}
	errs = append(errs, r.sweep(o.Destinations, paths))
	return done, errors.Join(errs...)
}

// settleOld finishes what an earlier run of this unit could not.
func (r *Replacer) settleOld(ctx context.Context, u Unit) error {
	path := r.journalPath(u.Name)
	j, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return r.setAside(path, err)
	}
	gate := func(ctx context.Context, _ string) (func(), error) {
		if u.Gate == nil {
			return nil, nil
		}
		return u.Gate(ctx)
	}
	rec := r.recoverUnit(ctx, j, RecoverOptions{Gate: gate})
	r.log.Info("repaired an interrupted replacement", "unit", rec.Unit, "action", rec.Action)
	return rec.Err
}

func (r *Replacer) recoverPath(ctx context.Context, path string, o RecoverOptions) (Recovery, error) {
	j, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Recovery{}, nil // a Replace was faster
	}
	if err != nil {
		return Recovery{}, r.setAside(path, err)
	}
	release, err := r.hold(ctx, j.Unit)
	if err != nil {
		return Recovery{}, err
	}
	defer release()
	rec := r.recoverUnit(ctx, j, o)
	return rec, rec.Err
}

// recoverUnit goes forward where it can and may, else back.
func (r *Replacer) recoverUnit(ctx context.Context, j *journal, o RecoverOptions) Recovery {
	rec := Recovery{Unit: j.Unit, Action: Owed}
	for i := range j.Files {
		rec.Destinations = append(rec.Destinations, j.Files[i].Destination)
	}
	fail := func(err error) Recovery {
		rec.Err = fmt.Errorf("recover %s: %w", j.Unit, err)
		return rec
	}
	defer j.closeDirs()
	if err := j.openDirs(); err != nil {
		return fail(err)
	}
	if j.Gated && o.Gate != nil {
		release, err := o.Gate(ctx, j.Unit)
		if err != nil {
			return fail(err)
		}
		if release != nil {
			defer release()
		}
	}
	forward, err := j.complete()
	if err != nil {
		return fail(err)
	}
	forward = forward && (o.Back == nil || !o.Back(j.Unit))
	// As in Replace: what was begun is not left half done.
	ctx = context.WithoutCancel(ctx)
	if forward {
		if err := r.renameAll(j); err != nil {
			r.log.Warn("cannot complete an interrupted replacement, rolling back", "unit", j.Unit, "error", err)
			forward = false
		}
	}
	back := false
	if forward {
		var out Outcome
		err = r.finish(ctx, j, &out)
		back = out.RolledBack
	} else {
		back, err = r.rollBack(ctx, j, j.Reloads)
	}
	switch {
	case back:
		rec.Action = RolledBack
	case err == nil:
		rec.Action = Completed
	}
	if err != nil {
		return fail(err)
	}
	return rec
}

// complete says whether every file is new or has its staged file intact.
func (j *journal) complete() (bool, error) {
	for i := range j.Files {
		f := &j.Files[i]
		placed, err := f.isNew(f.name())
		if err != nil {
			return false, err
		}
		if placed {
			continue
		}
		staged, err := f.isNew(stagedName(f.name()))
		if err != nil || !staged {
			return false, err
		}
	}
	return true, nil
}

// setAside keeps a journal that cannot be read, but out of the way.
func (r *Replacer) setAside(path string, cause error) error {
	aside := strings.TrimSuffix(path, ".json") + ".unreadable"
	d, err := durable.OpenDir(r.journals)
	if err != nil {
		return errors.Join(cause, err)
	}
	defer d.Close()
	if err := d.Rename(filepath.Base(path), filepath.Base(aside)); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w: kept as %s; check the files it names, then remove it", cause, aside)
}

// sweep removes what crashes left beside destinations, except what a journal
// still needs. Destinations that were configured when jorc last started count,
// too: a template may have been removed since the crash.
func (r *Replacer) sweep(destinations, journals []string) error {
	needed := make(map[string]bool)
	for _, path := range journals {
		j, err := load(path)
		if err != nil {
			continue // done, or set aside
		}
		for i := range j.Files {
			needed[j.Files[i].Target] = true
		}
	}
	before, err := r.readTargets()
	errs := []error{err}
	var now []string
	for i, d := range slices.Concat(destinations, before) {
		p, err := durable.Locate(d)
		if err != nil {
			continue // it is reported when it is replaced
		}
		path := p.Path()
		if len(p.Missing) == 0 && p.Name != "" && !needed[path] {
			errs = append(errs, unlink(p.Dir, stagedName(p.Name)), unlink(p.Dir, backupName(p.Name)))
		}
		_ = p.Dir.Close()
		if i < len(destinations) || needed[path] {
			now = append(now, path)
		}
	}
	return errors.Join(append(errs, r.writeTargets(before, now))...)
}

// targets are the paths of the files that were configured last.
type targets struct {
	Paths []string `json:"paths"`
}

// targets is the document with the paths of the files that were configured last.
func (r *Replacer) targets() durable.Doc[targets] {
	return durable.NewDoc[targets](filepath.Join(filepath.Dir(r.journals), "targets.json"), 1)
}

func (r *Replacer) readTargets() ([]string, error) {
	list, _, err := r.targets().Read()
	if err != nil && !errors.Is(err, durable.ErrDamaged) { // which is written again
		return nil, fmt.Errorf("destinations of the last start: %w", err)
	}
	return slices.DeleteFunc(list.Paths, func(path string) bool { return !filepath.IsAbs(path) }), nil
}

func (r *Replacer) writeTargets(before, now []string) error {
	slices.Sort(now)
	now = slices.Compact(now)
	if slices.Equal(before, now) {
		return nil
	}
	if err := r.targets().Save(targets{now}); err != nil {
		return fmt.Errorf("destinations of this start: %w", err)
	}
	return nil
}
