package workflow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Jobs are all jobs of this host, the newest first. Those whose files cannot be
// read are Damaged.
func (r *Runner) Jobs() ([]Result, error) {
	entries, err := os.ReadDir(r.jobs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	all := []Result{}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		res, err := r.Job(e.Name())
		switch {
		case errors.Is(err, ErrNoJob):
			continue // removed in the meantime
		case err != nil:
			res = Result{ID: e.Name(), State: Damaged, Why: err.Error(), Suspect: []string{}, Tasks: []TaskStatus{}, History: []Transition{}}
		}
		all = append(all, res)
	}
	slices.SortStableFunc(all, func(a, b Result) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return all, nil
}

// Open are the jobs that have something left to do, in the order of their
// creation: what an agent goes on with when it starts.
func (r *Runner) Open() ([]Result, error) {
	all, err := r.Jobs()
	if err != nil {
		return nil, err
	}
	open := slices.DeleteFunc(all, func(j Result) bool { return !j.Open })
	slices.Reverse(open)
	return open, nil
}

// Job reads one job. Errors are ErrNoJob, ErrDamaged and ErrInvalid.
func (r *Runner) Job(id string) (Result, error) {
	if err := CheckID(id); err != nil {
		return Result{}, err
	}
	j, err := r.loadJob(id)
	if err != nil {
		return Result{}, err
	}
	return j.result(), nil
}

// WriteLog writes what tasks of a job printed to w, in their order; with task
// only that one's.
func (r *Runner) WriteLog(w io.Writer, id, task string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	j, err := r.loadJob(id)
	if err != nil {
		return err
	}
	found := false
	for i := range j.spec.Steps {
		if name := j.spec.Steps[i].Name; task == "" || task == name {
			found = true
			if err := copyLog(w, j.logPath(i)); err != nil {
				return fmt.Errorf("log of task %q: %w", name, err)
			}
		}
	}
	if !found {
		return fmt.Errorf("job %q: task %q: %w", id, task, ErrNoTask)
	}
	return nil
}
