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
			state := d.record.Turn.State
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

// idle returns for how long a turn that was accepted may still be unused; used reports that the engine replaces its
// files.
func (d *driver) idle() (left time.Duration, used bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.record.Turn
	return turn.Deadline - turn.Begun.Elapsed(), d.taking || turn.State != cluster.StageChanging
}

// leave ends a turn that the engine did not use by its deadline.
func (d *driver) leave(files Files) {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.record.Turn
	if d.taking || turn.State != cluster.StageChanging {
		return
	}
	switch has, err := turn.onDisk(files.Compare); {
	case err != nil:
		d.fail("its files were not replaced, and cannot be read: " + err.Error())
	case has != turn.OldHas:
		d.fail("its files were not replaced, and are neither the old nor the new ones")
	default:
		d.mustKeep(d.record.unused())
		d.log.Warn("the grant ended unused: the templates no longer asked for it", "grant", d.record.Grant.ID)
	}
}

// verify compares the files with a turn that was interrupted while it replaced
// them. The replacement itself was repaired before. The caller holds mu.
func (d *driver) verify(files Files) {
	turn := d.record.Turn
	if turn.State != cluster.StageChanging {
		return
	}
	has, err := turn.onDisk(files.Compare)
	switch {
	case err == nil && has == d.record.Grant.Tag:
		d.settle(turn.Inputs)
	case err == nil && has == turn.OldHas && turn.overdue():
		d.notReplaced(fmt.Errorf("its replacement was interrupted, and has not ended within %v of its grant", turn.Deadline))
	case err == nil && has == turn.OldHas: // the engine replaces them now, or ends the turn
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
	services := d.record.Turn.Services
	d.mu.Unlock()
	return p.Failing(ctx, services)
}

// evaluate decides by the failing checks whether the turn is over.
func (d *driver) evaluate(failing []string, err error, now time.Time) (over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.record.Turn
	if turn.State != cluster.StageSettling {
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
	case !d.healthy.IsZero() && now.Sub(d.healthy) >= turn.MinHealthy:
		r := d.record
		r.Turn.State, r.Turn.Reason = cluster.StageDone, ""
		d.mustKeep(r)
		d.log.Info("the grant is done", "grant", d.record.Grant.ID)
		d.hosts.changes.Notify()
		return true
	case turn.Settling.Elapsed() < turn.Deadline:
		return false
	case err != nil:
		d.fail(fmt.Sprintf("its checks could not be read: %v", err))
	case len(failing) > 0:
		d.fail("its checks fail: " + strings.Join(failing, "; "))
	default:
		d.fail(fmt.Sprintf("its checks did not pass for %v within %v", turn.MinHealthy, turn.Deadline))
	}
	return true
}

// fail ends the turn: the old files return, or the new ones stay. A file that did
// not exist before stays as well: the host has no other. The caller holds mu.
func (d *driver) fail(reason string) {
	r := d.record
	r.Turn.Reason = reason
	r.Turn.State = cluster.StageFailed
	missing := slices.ContainsFunc(r.Turn.Files, func(f oldFile) bool { return !f.Existed })
	if r.Turn.Restore && !missing && len(r.Turn.Files) > 0 {
		r.Turn.State = cluster.StageRestoring
	}
	d.mustKeep(r)
	d.log.Error("a change failed on this host", "grant", r.Grant.ID, "reason", reason, "next", r.Turn.State)
	d.hosts.changes.Notify()
}

// restore brings the old files back and reloads them. It is repeated until it
// succeeds, also after a restart.
func (d *driver) restore(ctx context.Context, files Files) error {
	d.mu.Lock()
	turn := d.record.Turn
	d.mu.Unlock()
	err := d.restoreFiles(ctx, files, turn)
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.record
	if err != nil {
		text := "; its old files are not back: " + command.WithoutOutput(err)
		if !strings.HasSuffix(r.Turn.Reason, text) {
			d.log.Error("the old files are not back, will retry", "grant", d.record.Grant.ID, "error", err)
			before, _, _ := strings.Cut(r.Turn.Reason, "; its old files are not back: ")
			r.Turn.Reason = before + text
			d.mustKeep(r)
		}
		return err
	}
	r.Turn.Reason, _, _ = strings.Cut(r.Turn.Reason, "; its old files are not back: ")
	r.Turn.State, r.Has, r.Inputs = cluster.StageRestored, turn.OldHas, turn.OldInputs
	if d.wants == "" {
		d.want(r.Grant.Tag, turn.Taken) // until the engine asks again
	}
	d.mustKeep(r)
	d.log.Info("the old files are back", "grant", d.record.Grant.ID)
	d.hosts.changes.Notify()
	return nil
}

func (d *driver) restoreFiles(ctx context.Context, files Files, turn turnRecord) error {
	unit := replace.Unit{Name: turn.Unit}
	for i, old := range turn.Files {
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
	for i, old := range turn.Files {
		same := func(o oldFile) bool { return slices.Equal(o.Reload, old.Reload) }
		if len(old.Reload) == 0 || slices.ContainsFunc(turn.Files[:i], same) {
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
