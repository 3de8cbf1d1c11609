package replace

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Replace brings all files of u to their content, or none.
//
// Equal bytes write, check and reload nothing. Before anything changes every
// file is staged and every check has passed on it; an error up to there
// leaves all as it was: *CheckError, ctx's, the gate's, or a wrapped I/O error
// that names the destination and the remedy. When a reload fails, the previous
// content is put back and reloaded, and the error is a *ReloadError.
//
// When ctx ends after the first file was replaced, the reload is still run to
// its end: every new file has been loaded.
func (r *Replacer) Replace(ctx context.Context, u Unit) (out Outcome, err error) {
	release, err := r.hold(ctx, u.Name)
	if err != nil {
		return out, err
	}
	defer release()
	if err := r.settleOld(ctx, u); err != nil {
		return out, err
	}

	items, err := r.compare(u, &out)
	defer func() {
		for _, it := range items {
			_ = it.at.Dir.Close()
		}
	}()
	if err != nil || len(items) == 0 {
		return out, err
	}
	staged := false
	defer func() {
		if !staged {
			if cerr := unstage(items); cerr != nil {
				r.log.Warn("a staged file stays behind", "unit", u.Name, "error", cerr)
			}
		}
	}()
	if err := r.prepare(ctx, items, &out); err != nil {
		return out, err
	}
	if u.Gate != nil {
		r.step("gate")
		begin := time.Now()
		release, err := u.Gate(ctx)
		out.Waiting = time.Since(begin)
		if err != nil {
			return out, fmt.Errorf("gate of %s: %w", u.Name, err)
		}
		if release != nil {
			defer release()
		}
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	staged = true // from here on the staged files are used up, or removed by their users
	if len(items) == 1 && len(items[0].Reload) == 0 {
		return out, r.replaceOne(items[0], &out)
	}
	return out, r.replaceAll(context.WithoutCancel(ctx), u, items, &out)
}

// compare returns the files that have to change, whose directories the caller
// closes, also beside an error. Files that only lack the configured mode or owner
// get it here.
func (r *Replacer) compare(u Unit, out *Outcome) (items []*item, err error) {
	seen := make(map[string]string, len(u.Files))
	for _, f := range u.Files {
		it, err := locate(f)
		if err != nil {
			return items, err
		}
		if first, dup := seen[it.path]; dup {
			_ = it.at.Dir.Close()
			return items, fmt.Errorf("destinations %s and %s of %s are one file", first, f.Destination, u.Name)
		}
		seen[it.path] = f.Destination
		fixed, err := it.compare()
		if err == nil && !it.same && !it.edited {
			items = append(items, it)
			continue
		}
		_ = it.at.Dir.Close()
		if err != nil {
			return items, err
		}
		if it.edited {
			out.Edited = append(out.Edited, f.Destination)
		}
		if fixed {
			out.Fixed = append(out.Fixed, f.Destination)
		}
	}
	return items, nil
}

// prepare stages and checks; nothing live is touched.
func (r *Replacer) prepare(ctx context.Context, items []*item, out *Outcome) error {
	begin := time.Now()
	for _, it := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.stage(it); err != nil {
			return err
		}
	}
	for _, it := range items {
		r.reportLost(it.Destination, it.lost)
		if len(it.lost) > 0 {
			if out.Lost == nil {
				out.Lost = map[string][]string{}
			}
			out.Lost[it.Destination] = it.lost
		}
	}
	r.step("staged")
	out.Writing = time.Since(begin)
	begin = time.Now()
	err := r.check(ctx, items)
	out.Checking = time.Since(begin)
	return err
}

// replaceOne is the short way: a single file without a reload command needs
// no journal, because the rename is all there is.
func (r *Replacer) replaceOne(it *item, out *Outcome) error {
	begin := time.Now()
	defer func() { out.Writing += time.Since(begin) }()
	r.step("rename")
	err := it.verify()
	if err == nil {
		if err = it.at.Dir.Rename(stagedName(it.at.Name), it.at.Name); err != nil {
			err = ioError("replace", it.Destination, err)
		}
	}
	if err != nil {
		_ = unstage([]*item{it})
		return err
	}
	out.Changed = []string{it.Destination}
	it.stamp(it.staged)
	r.step("renamed")
	if err := r.dirs.Sync(it.at.Dir); err != nil {
		return ioError("replaced, but maybe not for good:", it.Destination, err)
	}
	r.step("done")
	return nil
}

// replaceAll is the long way: journal, replace, reload, and back if need be.
func (r *Replacer) replaceAll(ctx context.Context, u Unit, items []*item, out *Outcome) error {
	begin := time.Now()
	j := newJournal(u, items)
	for _, it := range items {
		if err := it.verify(); err != nil {
			_ = unstage(items)
			return err
		}
	}
	if err := r.open(j, items); err != nil {
		r.discard(j)
		_ = unstage(items)
		return err
	}
	if err := r.renameAll(j); err != nil {
		out.Writing += time.Since(begin)
		out.RolledBack = true
		lost, uerr := r.undo(j)
		if uerr == nil {
			uerr = r.close(j)
		}
		if uerr = errors.Join(lost, uerr); uerr != nil {
			out.RolledBack = false
			return fmt.Errorf("%w; roll back: %w", err, uerr)
		}
		return err
	}
	out.Writing += time.Since(begin)
	if err := r.finish(ctx, j, out); err != nil {
		return err
	}
	for _, it := range items {
		it.stamp(it.staged)
	}
	return nil
}
