package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/jorc/jorc/internal/durable"
)

// advance creates the job, or continues the one of that ID, as far as possible, with
// ask before each task that is left; the error of ask ends the job as stopped, and is
// the reason. A job that has ended stays as it is. Within one process calls wait for
// each other.
//
// A workflow that fails is a Result, not an error. Errors: ErrBusy when another
// process runs a job on this host, ErrUnknown, ErrInvalid (templates and params
// included), ErrDamaged, ctx's when it ended before the job did, and what kept
// progress from being written down. After an error the Result is the job as far
// as it is known.
func (r *Runner) advance(ctx context.Context, j Job, ask func(context.Context) error) (Result, error) {
	defer r.begin()()
	release, err := r.hold(ctx)
	if err != nil {
		return Result{}, err
	}
	defer release()
	job, err := r.loadOrCreate(ctx, j)
	if err != nil {
		return Result{}, err
	}
	if job.open() {
		err = r.runTasks(ctx, job, ask)
	}
	return job.result(), err
}

// Abandon ends an open job for good without running anything. It returns what
// advance does.
func (r *Runner) Abandon(ctx context.Context, id, why string) (Result, error) {
	if err := CheckID(id); err != nil {
		return Result{}, err
	}
	release, err := r.hold(ctx)
	if err != nil {
		return Result{}, err
	}
	defer release()
	j, err := r.loadJob(id)
	if err != nil {
		return Result{}, err
	}
	if !j.open() {
		return j.result(), nil
	}
	if _, err := r.interrupted(ctx, j); err != nil || !j.open() {
		return j.result(), err
	}
	err = r.finish(j, Stopped, -1, why)
	return j.result(), err
}

// Hold returns once no task runs on this host; none begins until release is called. It returns
// ErrBusy while one of another process runs.
func (r *Runner) Hold(ctx context.Context) (release func(), err error) { return r.hold(ctx) }

// hold takes the host: the turn within this process, then the lock.
func (r *Runner) hold(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if err != nil {
			<-r.turn
		}
	}()
	err = durable.CheckOwner(r.jobs)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		if err := durable.MkdirAll(r.jobs, 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w (set state_dir, or run as root)", err)
		}
		err = durable.CheckOwner(r.jobs)
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", r.jobs, err)
	}
	lock, err := durable.TryLock(filepath.Join(r.jobs, lockName))
	if errors.Is(err, durable.ErrLocked) {
		return nil, fmt.Errorf("%w%s: %w", ErrBusy, r.runningJob(), err)
	}
	if err != nil {
		return nil, err
	}
	return func() {
		if err := lock.Unlock(); err != nil {
			r.log.Warn("lock of jobs", "error", err)
		}
		<-r.turn
	}, nil
}

// runningJob names the job that seems to be running.
func (r *Runner) runningJob() string {
	open, err := r.Open()
	if err != nil {
		return ""
	}
	for i := range open {
		for _, t := range open[i].Tasks {
			if t.State == TaskRunning {
				return fmt.Sprintf(": job %s, workflow %q, task %q", open[i].ID, open[i].Workflow, t.Name)
			}
		}
	}
	return ""
}

// loadOrCreate finds the job or makes it.
func (r *Runner) loadOrCreate(ctx context.Context, j Job) (*job, error) {
	if err := r.sweep(); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	if j.ID != "" {
		if err := CheckID(j.ID); err != nil {
			return nil, err
		}
		found, err := r.loadJob(j.ID)
		switch {
		case err == nil && j.Workflow != "" && j.Workflow != found.spec.Workflow:
			return nil, fmt.Errorf("job %q: %w: it is of workflow %q, not %q", j.ID, ErrInvalid, found.spec.Workflow, j.Workflow)
		case err == nil:
			if err := durable.RemoveTemp(found.dir); err != nil {
				return nil, fmt.Errorf("job %q: %w", j.ID, err)
			}
			return found, nil
		case !errors.Is(err, ErrNoJob) || j.Workflow == "":
			return nil, err
		}
	}
	if err := r.prune(); err != nil {
		r.log.Warn("old jobs stay behind", "error", err)
	}
	return r.create(ctx, j)
}

// runTasks runs the tasks that are left.
func (r *Runner) runTasks(ctx context.Context, j *job, ask func(context.Context) error) error {
	if next, err := r.resume(ctx, j); err != nil || !next {
		return err
	}
	for i := range j.spec.Steps {
		if j.rec.Tasks[i].State.done() {
			continue
		}
		if next, err := r.between(ctx, j, ask); err != nil || !next {
			return err
		}
		if next, err := r.task(ctx, j, i); err != nil || !next {
			return err
		}
	}
	return r.finish(j, Success, -1, "")
}

// between is what happens before each task.
func (r *Runner) between(ctx context.Context, j *job, ask func(context.Context) error) (next bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if why := r.held(); why != "" {
		return false, r.suspend(j, Held, -1, "held: "+why)
	}
	if ask != nil {
		if err := ask(ctx); err != nil {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			return false, r.finish(j, Stopped, -1, err.Error())
		}
	}
	return true, nil
}

// resume handles what happened to an open job since its record was written.
func (r *Runner) resume(ctx context.Context, j *job) (next bool, err error) {
	next, err = r.interrupted(ctx, j)
	if err != nil || !next {
		return false, err
	}
	if j.rec.State != Reboot {
		return true, nil
	}
	if j.rec.Boot.same(r.boot()) {
		return false, nil
	}
	j.setRunning()
	r.note(j, -1, string(Running), "the host was rebooted")
	return true, r.save(j)
}

// interrupted deals with the task that ran when jorc ended without a word. What
// is left of it is killed: nothing of it may run beside what comes next.
func (r *Runner) interrupted(ctx context.Context, j *job) (next bool, err error) {
	defer r.removePlace(j)
	for i := range j.rec.Tasks {
		if j.rec.Tasks[i].State != TaskRunning {
			continue
		}
		j.rec.Tasks[i].ExitCode = exitSIGKILL
		why := "the host went down while it ran"
		if j.rec.Boot.same(r.boot()) {
			killed, err := killMarked(j.mark(i))
			if err != nil {
				return false, fmt.Errorf("job %q: task %q: %w", j.spec.ID, j.spec.Steps[i].Name, err)
			}
			why = "jorc ended while it ran"
			if len(killed) > 0 {
				why += fmt.Sprintf(" and %v was killed", killed)
			}
		}
		if err := r.cutOff(ctx, j, i, why, nil); err != nil {
			return false, err
		}
	}
	return j.open(), nil
}
