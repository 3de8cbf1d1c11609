package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/durable"
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
// creation: what an agent continues when it starts.
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

// GateDir is the state directory of jobs of gates, beside the state directory of other jobs
// of managers.
func GateDir(stateDir string) string { return filepath.Join(stateDir, "gates") }

// ClusterDir is the state directory of jobs for a cluster that the host orchestrates
// without being a member of it.
func ClusterDir(stateDir, cluster string) string { return filepath.Join(stateDir, "clusters", cluster) }

// Archive reads all jobs of a host, whichever Runner ran them.
type Archive struct{ runners []*Runner }

// OpenArchive finds the jobs of the host with that state directory.
func OpenArchive(stateDir string) (*Archive, error) {
	a := &Archive{}
	for _, dir := range []string{stateDir, ManagerDir(stateDir), GateDir(stateDir)} {
		a.runners = append(a.runners, New(Options{StateDir: dir}))
	}
	clusters, err := os.ReadDir(ClusterDir(stateDir, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	for _, c := range clusters {
		dir := ClusterDir(stateDir, c.Name())
		a.runners = append(a.runners, New(Options{StateDir: dir}), New(Options{StateDir: GateDir(dir)}))
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

// Forget removes a job that has ended, with its logs, before its
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

// remove removes a job whole or not at all; sweep repairs what a crash left.
func (r *Runner) remove(id string) error {
	old := filepath.Join(r.jobs, oldMark+id)
	if err := os.Rename(filepath.Join(r.jobs, id), old); err != nil {
		return fmt.Errorf("remove job %q: %w", id, err)
	}
	r.mu.Lock()
	delete(r.ended, id)
	r.mu.Unlock()
	r.hook("remove")
	// A power failure could keep the name and lose files: a damaged job.
	if err := durable.SyncDir(r.jobs); err != nil {
		return fmt.Errorf("remove job %q: %w", id, err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove job %q: %w", id, err)
	}
	return nil
}

// Retention bounds the finished jobs that are kept; open ones are always. Zero
// values are the defaults, negative ones mean no bound.
type Retention struct {
	Jobs  int           // of each workflow, default 50
	Age   time.Duration // since they finished, default 30 days
	Bytes int64         // of the files of all, default 256 MiB
}

func (k Retention) withDefaults() Retention {
	if k.Jobs == 0 {
		k.Jobs = 50
	}
	if k.Age == 0 {
		k.Age = 30 * 24 * time.Hour
	}
	if k.Bytes == 0 {
		k.Bytes = 256 << 20
	}
	return k
}

// finished is a job as retention sees it.
type finished struct {
	id       string
	workflow string
	at       time.Time
	bytes    int64
}

func (j *job) finished() finished {
	return finished{id: j.spec.ID, workflow: j.spec.Workflow, at: j.rec.Finished, bytes: size(j.dir)}
}

// excess names the jobs that have to go: the oldest. Jobs are counted by
// workflow, so that one that runs every minute does not push out the others.
func (k Retention) excess(jobs []finished, now time.Time) []string {
	slices.SortFunc(jobs, func(a, b finished) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.id, a.id)) }) // newest first
	var (
		gone  []string
		bytes int64
	)
	count := map[string]int{}
	for _, j := range jobs {
		bytes += j.bytes
		count[j.workflow]++
		switch {
		case k.Jobs >= 0 && count[j.workflow] > k.Jobs, k.Age >= 0 && now.Sub(j.at) > k.Age, k.Bytes >= 0 && bytes > k.Bytes:
			gone = append(gone, j.id)
		}
	}
	return gone
}

// prune removes the jobs that retention does not keep. The files of a job that has
// ended are read at most once by each Runner: they no longer change.
func (r *Runner) prune() error {
	entries, err := os.ReadDir(r.jobs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("jobs: %w", err)
	}
	r.mu.Lock()
	before := r.ended
	r.mu.Unlock()
	ended := make(map[string]finished, len(entries))
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if known, ok := before[e.Name()]; ok {
			ended[e.Name()] = known
			continue
		}
		j, err := r.loadJob(e.Name())
		if err == nil && !j.open() {
			ended[e.Name()] = j.finished()
		}
	}
	r.mu.Lock()
	r.ended = ended
	r.mu.Unlock()
	for _, id := range r.o.Keep.excess(slices.Collect(maps.Values(ended)), r.now()) {
		if _, err := r.loadJob(id); err != nil {
			continue // damaged jobs stay
		}
		if err := r.remove(id); err != nil {
			return err
		}
	}
	return nil
}

// size is how many bytes the files of a directory have; what cannot be read counts nothing.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
