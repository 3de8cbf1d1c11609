package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	slices.SortStableFunc(all, newestFirst)
	return all, nil
}

func newestFirst(a, b Result) int {
	return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID, a.ID))
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

// ManagerDir is the state directory of jobs of runs on managers, on the host whose
// own state directory is stateDir.
func ManagerDir(stateDir string) string { return filepath.Join(stateDir, "manager") }

// ClusterDir is the state directory of jobs for a cluster that the host orchestrates
// without being a member of it.
func ClusterDir(stateDir, cluster string) string { return filepath.Join(stateDir, "clusters", cluster) }

// Archive reads all jobs of a host, whichever Runner ran them.
type Archive struct{ runners []*Runner }

// OpenArchive finds the jobs of the host with that state directory.
func OpenArchive(stateDir string) (*Archive, error) {
	a := &Archive{[]*Runner{New(Options{StateDir: stateDir}), New(Options{StateDir: ManagerDir(stateDir)})}}
	clusters, err := os.ReadDir(ClusterDir(stateDir, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	for _, c := range clusters {
		a.runners = append(a.runners, New(Options{StateDir: ClusterDir(stateDir, c.Name())}))
	}
	return a, nil
}

// Jobs are all jobs, the newest first.
func (a *Archive) Jobs() ([]Result, error) {
	all := []Result{}
	for _, r := range a.runners {
		jobs, err := r.Jobs()
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	slices.SortStableFunc(all, newestFirst)
	return all, nil
}

// Job reads one job, and returns the Runner that has its log. Errors are those of
// Runner.Job.
func (a *Archive) Job(id string) (res Result, r *Runner, err error) {
	for _, r = range a.runners {
		if res, err = r.Job(id); !errors.Is(err, ErrNoJob) {
			break
		}
	}
	return res, r, err
}
