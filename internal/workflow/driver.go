package workflow

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
)

// ErrKill, wrapped in the reason for which a job is to end, also ends the task
// that is running.
var ErrKill = errors.New("killed")

// Hooks are what the owner of a job adds to its course: a run, a trigger, the
// convergence of the host, a person. All are optional. Their ctx ends with that
// of Drive, and when the job is to end early.
type Hooks struct {
	// Prestart is called once, before anything of the job is run. It may wait, and
	// may complete the job. Its error ends the job.
	Prestart func(ctx context.Context, j *Job) error

	// Poststart is called before each task, when the job is on disk. Its error ends
	// the job as stopped, and is the reason.
	Poststart func(ctx context.Context) error

	// Wait is called when the job cannot continue now. It calls w.Until, or returns
	// again = false if Drive is to return with the job as it is.
	Wait func(ctx context.Context, w Wait) (again bool, err error)

	// Watch runs beside the job. It calls stop when the job is to end early: before
	// the next task, or at once if why wraps ErrKill. It returns when ctx ends.
	Watch func(ctx context.Context, stop func(why error))

	// Stop is called once the job has ended, with what Drive returns. After an error
	// Drive returns that. It is not called when Drive's ctx has ended.
	Stop func(ctx context.Context, res Result, err error) error
}

// Wait is a job that cannot continue now.
type Wait struct {
	Result Result
	Err    error // why the job could not be created or continued; nil: Result.Why
	Until  func(ctx context.Context) error
}

// Why is the reason in one line.
func (w Wait) Why() string {
	if w.Err != nil {
		return w.Err.Error()
	}
	return w.Result.Why
}

// Drive is the one driver of this node's jobs. It creates the job, or continues
// the one of that ID, and runs it to its end: through waits for services, for the
// end of a hold, and for other jobs on this host. A job that has ended is not run
// again.
//
// It returns ErrUnknown, ErrInvalid or ErrDamaged if the job can never run, the
// error of a hook, or the reason for which the job ended early. After ctx has
// ended it returns ctx's error, with the job as far as it is known: if it has not
// ended, Drive continues it, also in another process.
func (r *Runner) Drive(ctx context.Context, j Job, h Hooks) (Result, error) {
	res, err := r.drive(ctx, j, h)
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	if h.Stop != nil {
		if failed := h.Stop(ctx, res, err); failed != nil {
			return res, failed
		}
	}
	return res, err
}

func (r *Runner) drive(ctx context.Context, j Job, h Hooks) (Result, error) {
	d := &drive{r: r, job: j, hooks: h, trouble: concurrency.NewBackoff(r.retry, time.Minute)}
	var end context.CancelFunc
	d.running, d.kill = context.WithCancelCause(ctx)
	d.waiting, d.wake = context.WithCancelCause(d.running)
	watching, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	if h.Watch != nil {
		all.Go(func() { h.Watch(watching, d.stop) })
	}
	defer func() {
		end()
		all.Wait()
		d.wake(nil)
		d.kill(nil)
	}()
	return d.toEnd(ctx)
}

// drive is one call of Drive.
type drive struct {
	r       *Runner
	job     Job
	hooks   Hooks
	trouble *concurrency.Backoff

	running context.Context // ends when the running task is to be killed
	kill    context.CancelCauseFunc
	waiting context.Context // ends when the job is to end
	wake    context.CancelCauseFunc

	mu  sync.Mutex
	why error // for which the job is to end
}

// stop makes the job end, for the first reason that it gets; a kill comes later,
// too.
func (d *drive) stop(why error) {
	d.mu.Lock()
	if d.why == nil || errors.Is(why, ErrKill) && !errors.Is(d.why, ErrKill) {
		d.why = why
	}
	d.mu.Unlock()
	d.wake(why)
	if errors.Is(why, ErrKill) {
		d.kill(why)
	}
}

// stopped is why the job is to end, or nil.
func (d *drive) stopped() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

// beforeTask is called before each task that is left.
func (d *drive) beforeTask(ctx context.Context) error {
	if why := d.stopped(); why != nil {
		return why
	}
	if d.hooks.Poststart != nil {
		return d.hooks.Poststart(ctx)
	}
	return nil
}

// toEnd runs the job until it has ended.
func (d *drive) toEnd(ctx context.Context) (Result, error) {
	if d.hooks.Prestart != nil {
		if err := d.hooks.Prestart(d.waiting, &d.job); err != nil {
			return d.failed(ctx, Result{}, err)
		}
	}
	for {
		if why := d.stopped(); why != nil {
			return d.abandon(ctx, why)
		}
		res, err := d.r.advance(d.running, d.job, d.beforeTask)
		switch {
		case ctx.Err() != nil:
			return res, ctx.Err()
		case d.running.Err() != nil:
			return d.abandon(ctx, d.stopped())
		case errors.Is(err, ErrUnknown), errors.Is(err, ErrInvalid), errors.Is(err, ErrDamaged):
			return res, err
		case err == nil && !res.Open:
			if why := d.stopped(); why != nil && res.endedEarly() {
				return res, why
			}
			return res, nil
		case err == nil:
			d.job.ID = res.ID
		}
		again, err := d.wait(Wait{Result: res, Err: err, Until: func(ctx context.Context) error { return d.until(ctx, res, err) }})
		if err != nil {
			return d.failed(ctx, res, err)
		}
		if !again {
			return res, nil
		}
	}
}

// endedEarly reports whether no task of its own ended the job.
func (res Result) endedEarly() bool {
	return res.State == Stopped && res.Task == "" || res.State == Interrupted
}

// failed is the end of a job after the error of a hook, which may be that the job
// is to end.
func (d *drive) failed(ctx context.Context, res Result, err error) (Result, error) {
	if why := d.stopped(); why != nil && ctx.Err() == nil {
		return d.abandon(ctx, why)
	}
	return res, err
}

// abandon ends the job for why. Without a job there is nothing to end; one that
// ended before stays as it is.
func (d *drive) abandon(ctx context.Context, why error) (Result, error) {
	if d.job.ID == "" {
		return Result{}, why
	}
	res, err := d.r.Abandon(ctx, d.job.ID, why.Error())
	switch {
	case errors.Is(err, ErrNoJob):
		return Result{}, why
	case err == nil && !res.endedEarly():
		return res, nil
	case err != nil && ctx.Err() == nil:
		d.r.log.Warn("cannot end the job, it stays open", "job", d.job.ID, "error", err)
	}
	return res, why
}

func (d *drive) wait(w Wait) (again bool, err error) {
	if d.hooks.Wait != nil {
		return d.hooks.Wait(d.waiting, w)
	}
	return true, w.Until(d.waiting)
}

// rebootPatience is how long a host may take to go down before a reboot is asked for again.
const rebootPatience = 10 * time.Minute

// rebootRetry is the pause after a reboot that could not be asked for.
const rebootRetry = time.Minute

// until returns when it is worth running the job again.
func (d *drive) until(ctx context.Context, res Result, err error) error {
	if err != nil { // another job runs on this host, or its disk is full
		d.r.log.Warn("the job has to wait", "job", d.job.ID, "workflow", d.job.Workflow, "error", err)
		return d.trouble.Wait(ctx)
	}
	d.trouble.Reset()
	switch {
	case res.State == Pending:
		return d.r.ready(ctx, res.ID)
	case ctx.Err() != nil:
		return ctx.Err()
	case res.State == Reboot && d.r.o.Reboot != nil && !d.r.handedOver():
		d.r.log.Warn("this host is rebooted", "job", d.job.ID, "workflow", res.Workflow, "why", res.Why)
		if err := d.r.o.Reboot(ctx); err != nil {
			d.r.log.Error("this host cannot be rebooted, will retry", "job", d.job.ID, "error", err)
			return d.r.sleep(ctx, rebootRetry)
		}
		return d.r.sleep(ctx, rebootPatience)
	case res.State == Reboot, res.State == Held && d.r.handedOver():
		<-ctx.Done() // another process, or configuration, continues
		return ctx.Err()
	case res.State == Held && d.r.o.Free != nil:
		return d.r.o.Free(ctx)
	}
	return d.trouble.Wait(ctx)
}

// HandOver keeps further tasks from starting, for why, and returns when none runs
// any longer, or ctx has ended. Jobs in progress are open then, and another Runner
// continues them.
func (r *Runner) HandOver(ctx context.Context, why string) {
	r.mu.Lock()
	r.yield = why
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (r *Runner) handedOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.yield != ""
}

// begin counts a call of advance, for HandOver.
func (r *Runner) begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running++; r.running == 1 {
		r.idle = make(chan struct{})
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.running--; r.running == 0 {
			close(r.idle)
		}
	}
}

// held is why no further task may start; empty: it may.
func (r *Runner) held() string {
	r.mu.Lock()
	yield := r.yield
	r.mu.Unlock()
	if yield != "" || r.o.Held == nil {
		return yield
	}
	return r.o.Held()
}

// ready returns when it is worth running a pending job again: its next task's
// requirements are there, or, when the task itself said "not yet", after a
// pause that grows from a second to a minute. It returns at once for jobs that
// are not pending, and ctx's error when that ended first.
func (r *Runner) ready(ctx context.Context, id string) error {
	j, err := r.loadJob(id)
	if err != nil {
		return err
	}
	if j.rec.State != Pending || j.rec.Task < 0 {
		return nil
	}
	s, t := &j.spec.Steps[j.rec.Task], &j.rec.Tasks[j.rec.Task]
	if missing, err := r.missing(ctx, s); err != nil || missing == "" {
		if err != nil {
			return err
		}
		const most = time.Minute
		return r.sleep(ctx, min(backoff(firstRetry, max(t.Deferrals, 1)), most))
	}
	if r.o.Requirements == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.o.Requirements.Wait(ctx, s.Requires)
}
