package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/replace"
)

const (
	// samplePause is how often the checks are read while the host settles. Consul's
	// agent has no blocking query for its own checks, and those of the catalog stay as
	// they were while the servers have no leader.
	samplePause = 500 * time.Millisecond
	// sampleWithin bounds one reading.
	sampleWithin = 3 * time.Second
	// longestGap is the longest pause between two readings: after a longer one the
	// checks have to pass again.
	longestGap = 10 * time.Second
)

// drive watches the checks and restores files until ctx ends. It needs Consul's
// servers for neither.
func (d *driver) drive(ctx context.Context) error {
	retry := concurrency.NewBackoff(firstRetry, lastRetry)
	for ctx.Err() == nil {
		part, files, begun := d.hosts.current()
		var until time.Time // zero: until there is news
		if part != nil && begun {
			d.mu.Lock()
			d.load()
			state := d.record.Attempt.State
			d.mu.Unlock()
			switch state {
			case cluster.StageChanging:
				left, used := d.idle()
				switch {
				case used:
				case left <= 0:
					d.leave(files)
					continue
				default:
					until = time.Now().Add(left)
				}
			case cluster.StageSettling:
				failing, err := d.sample(ctx, *part)
				if d.evaluate(failing, err, time.Now()) {
					continue
				}
				until = time.Now().Add(samplePause)
			case cluster.StageRestoring:
				if err := d.restore(ctx, files); err == nil {
					retry.Reset()
					continue
				}
				until = time.Now().Add(retry.Next())
			}
		}
		_ = d.news.WaitUntil(ctx, until) // or it is time, or ctx has ended
	}
	return ctx.Err()
}

// idle returns for how long an attempt that was accepted may still be unused; used reports that the engine replaces its
// files.
func (d *driver) idle() (left time.Duration, used bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	attempt := d.record.Attempt
	return attempt.Deadline - d.hosts.clock.Elapsed(attempt.Begun), d.taking || attempt.State != cluster.StageChanging
}

// leave ends an attempt that the engine did not use by its deadline.
func (d *driver) leave(files Files) {
	d.mu.Lock()
	defer d.mu.Unlock()
	attempt := d.record.Attempt
	if d.taking || attempt.State != cluster.StageChanging {
		return
	}
	switch has, err := attempt.onDisk(files.Compare); {
	case err != nil:
		d.fail("its files were not replaced, and cannot be read: " + err.Error())
	case has != attempt.OldHas:
		d.fail("its files were not replaced, and are neither the old nor the new ones")
	default:
		d.mustKeep(d.record.unused())
		d.log.Warn("the grant ended unused: the templates no longer asked for it", "grant", d.record.Grant.ID)
	}
}

// verify compares the files with an attempt that was interrupted while it replaced
// them. The replacement itself was repaired before. The caller holds mu.
func (d *driver) verify(files Files) {
	attempt := d.record.Attempt
	if attempt.State != cluster.StageChanging {
		return
	}
	has, err := attempt.onDisk(files.Compare)
	switch {
	case err == nil && has == d.record.Grant.Tag:
		d.settle(attempt.Inputs)
	case err == nil && has == attempt.OldHas && attempt.overdue(d.hosts.clock):
		d.notReplaced(fmt.Errorf("its replacement was interrupted, and has not ended within %v of its grant", attempt.Deadline))
	case err == nil && has == attempt.OldHas: // the engine replaces them now, or ends the attempt
	default:
		why := "after an interruption its files are neither the old nor the new ones"
		if err != nil {
			why = "after an interruption its files cannot be read: " + err.Error()
		}
		d.fail(why)
	}
}

// sample reads the failing checks of this host.
func (d *driver) sample(ctx context.Context, p Part) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleWithin)
	defer cancel()
	d.mu.Lock()
	services := d.record.Attempt.Services
	d.mu.Unlock()
	return p.Failing(ctx, services)
}

// evaluate decides by the failing checks whether the attempt is over.
func (d *driver) evaluate(failing []string, err error, now time.Time) (over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	attempt := d.record.Attempt
	if attempt.State != cluster.StageSettling {
		return true
	}
	switch {
	case err != nil || len(failing) > 0:
		d.healthy = time.Time{}
	case d.healthy.IsZero() || now.Sub(d.sampled) > longestGap:
		d.healthy = now
	}
	d.sampled = now
	switch {
	case !d.healthy.IsZero() && now.Sub(d.healthy) >= attempt.MinHealthy:
		r := d.record
		r.Attempt.State, r.Attempt.Reason = cluster.StageDone, ""
		d.mustKeep(r)
		d.log.Info("the grant is done", "grant", d.record.Grant.ID)
		d.hosts.changes.Notify()
		return true
	case d.hosts.clock.Elapsed(attempt.Settling) < attempt.Deadline:
		return false
	case err != nil:
		d.fail(fmt.Sprintf("its checks could not be read: %v", err))
	case len(failing) > 0:
		d.fail("its checks fail: " + strings.Join(failing, "; "))
	default:
		d.fail(fmt.Sprintf("its checks did not pass for %v within %v", attempt.MinHealthy, attempt.Deadline))
	}
	return true
}

// fail ends the attempt: the old files return, or the new ones stay. A file that did
// not exist before stays as well: the host has no other. The caller holds mu.
func (d *driver) fail(reason string) {
	r := d.record
	r.Attempt.Reason = reason
	r.Attempt.State = cluster.StageFailed
	missing := slices.ContainsFunc(r.Attempt.Files, func(f oldFile) bool { return !f.Existed })
	if r.Attempt.Restore && !missing && len(r.Attempt.Files) > 0 {
		r.Attempt.State = cluster.StageRestoring
	}
	d.mustKeep(r)
	d.log.Error("a change failed on this host", "grant", r.Grant.ID, "reason", reason, "next", r.Attempt.State)
	d.hosts.changes.Notify()
}

// restore brings the old files back and reloads them. It is repeated until it
// succeeds, also after a restart.
func (d *driver) restore(ctx context.Context, files Files) error {
	d.mu.Lock()
	attempt := d.record.Attempt
	d.mu.Unlock()
	err := d.restoreFiles(ctx, files, attempt)
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.record
	if err != nil {
		text := "; its old files are not back: " + command.WithoutOutput(err)
		if !strings.HasSuffix(r.Attempt.Reason, text) {
			d.log.Error("the old files are not back, will retry", "grant", d.record.Grant.ID, "error", err)
			before, _, _ := strings.Cut(r.Attempt.Reason, "; its old files are not back: ")
			r.Attempt.Reason = before + text
			d.mustKeep(r)
		}
		return err
	}
	r.Attempt.Reason, _, _ = strings.Cut(r.Attempt.Reason, "; its old files are not back: ")
	r.Attempt.State, r.Has, r.Inputs = cluster.StageRestored, attempt.OldHas, attempt.OldInputs
	if d.wants == "" {
		d.want(r.Grant.Tag, attempt.Taken) // until the engine asks again
	}
	d.mustKeep(r)
	d.log.Info("the old files are back", "grant", d.record.Grant.ID)
	d.hosts.changes.Notify()
	return nil
}

func (d *driver) restoreFiles(ctx context.Context, files Files, attempt attemptRecord) error {
	unit := replace.Unit{Name: attempt.Unit}
	for i, old := range attempt.Files {
		data, err := os.ReadFile(oldFileName(d.dir, i))
		if err != nil {
			return err
		}
		unit.Files = append(unit.Files, replace.File{Name: old.Name, Destination: old.Destination, Data: data})
	}
	if _, err := files.Replace(ctx, unit); err != nil {
		return err
	}
	var errs []error
	for i, old := range attempt.Files {
		same := func(o oldFile) bool { return slices.Equal(o.Reload, old.Reload) }
		if len(old.Reload) == 0 || slices.ContainsFunc(attempt.Files[:i], same) {
			continue
		}
		res, err := command.Run(ctx, command.Command{Args: old.Reload, Env: command.Environ(), Timeout: old.ReloadTimeout})
		if err == nil && !res.OK() {
			err = fmt.Errorf("%s: exit code %d", strings.Join(old.Reload, " "), res.ExitCode)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
