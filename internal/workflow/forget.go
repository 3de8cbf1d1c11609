package workflow

import (
	"fmt"
	"os"
	"path/filepath"
)

// Forget removes a job that has come to its end, with its logs, before its
// retention is over. Errors are ErrNoJob, ErrInvalid, ErrDamaged, and ErrBusy
// for one that is still open.
func (r *Runner) Forget(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	j, err := r.loadJob(id)
	if err != nil {
		return err
	}
	if j.open() {
		return fmt.Errorf("job %q: %w: it has not come to its end", id, ErrBusy)
	}
	return r.remove(id)
}

// remove removes a job whole or not at all; sweep makes good what a crash left.
func (r *Runner) remove(id string) error {
	old := filepath.Join(r.jobs, oldMark+id)
	if err := os.Rename(filepath.Join(r.jobs, id), old); err != nil {
		return fmt.Errorf("remove job %q: %w", id, err)
	}
	r.hook("remove")
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove job %q: %w", id, err)
	}
	return nil
}
