package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/workflow"
)

// Bounds of what a node reports of a job, in bytes.
const (
	maxTail = 4 << 10
	maxWhy  = 1 << 10
)

// Reasons for which a job is to end early.
var (
	errCancelled = errors.New("cancelled")
	errGone      = errors.New("this node is no longer granted it")
)

// grantedJob is a job in progress. Its methods are its hooks.
type grantedJob struct {
	w   *Worker
	r   Runner
	e   Queued // as it was when it was taken up
	log hclog.Logger

	control uint64 // index of the cluster's control at which it may begin

	here    bool // the job is on this node's disk
	begun   bool // Consul knows that it runs
	waits   bool // Consul knows what it waits for
	once    bool // Consul knows that a task is about to run that must not run again
	trouble bool // Consul knows why it could not be continued
}

// execute brings a job to its end and reports that. It returns an error only
// when ctx has ended before.
func (w *Worker) execute(ctx context.Context, r Runner, e Queued) error {
	_, err := r.Job(e.Job)
	j := &grantedJob{w: w, r: r, e: e, log: w.o.Log.With("run", e.Run), here: err == nil, begun: e.State == Running, waits: e.Why != "", once: e.Once != ""}
	if errors.Is(err, workflow.ErrNoJob) && j.begun {
		// Whatever of it was run: it is not run a second time.
		return j.report(ctx, Result{
			State: Failed, Why: "it had begun, and its files are no longer on this node: it is not run again", Done: e.Done, Once: e.Once,
		})
	}
	_, _ = r.Drive(ctx, workflow.Job{ID: e.Job}, workflow.Hooks{ // stop reports the error
		Prestart: j.prestart, Poststart: j.poststart, Wait: j.wait, Watch: j.watch, Stop: j.stop,
	})
	return ctx.Err()
}

// prestart completes a new job with what is asked for, and waits until the node
// may start it.
func (j *grantedJob) prestart(ctx context.Context, job *workflow.Job) error {
	if err := j.asked(); err != nil {
		return err
	}
	if !j.here { // otherwise its files have everything
		run, done, err := j.spec(ctx)
		if err != nil {
			return err
		}
		job.Workflow, job.Params, job.Origin, job.Done = run.Request.Workflow, run.Request.Params, "run "+j.e.Run, done
		job.FromRun, job.Out = true, j.e.Disturbs
		if job.Done == nil {
			job.Done = j.finished(run.Request)
		}
		if j.w.o.Version != nil {
			job.Version = j.w.o.Version()
		}
	}
	if !j.begun {
		if err := j.mayBegin(ctx); err != nil {
			return err
		}
	}
	if j.e.Disturbs && j.w.o.Maintenance != nil {
		if err := j.leaveService(ctx); err != nil {
			return err
		}
	}
	j.w.hook("run")
	return nil
}

// mayBegin returns when the job may begin, with j.control.
func (j *grantedJob) mayBegin(ctx context.Context) (err error) {
	now, _ := j.w.now.Get()
	if until := change.QuietUntil(now.reset); !j.here && time.Now().Before(until) {
		j.w.hook("quiet")
		if err := concurrency.Sleep(ctx, time.Until(until)); err != nil {
			return err
		}
	}
	if j.w.o.Begin != nil {
		if j.w.o.Held != nil {
			if why := j.w.o.Held(); why != "" {
				j.reportWait(ctx, Result{Why: why})
			}
		}
		if j.control, err = j.w.o.Begin(ctx); err != nil {
			return err
		}
	}
	if !j.e.Until.IsZero() && !time.Now().Before(j.e.Until) {
		<-ctx.Done() // the orchestrator takes the grant back
		return ctx.Err()
	}
	return nil
}

// leaveService takes the node out of service, however long that takes.
func (j *grantedJob) leaveService(ctx context.Context) error {
	return concurrency.Retry(ctx, j.w.backoff(), func(ctx context.Context) error {
		return j.w.o.Maintenance.Begin(ctx, j.e.Job, consul.JorcNote+" run "+j.e.Run)
	}, func(err error, pause time.Duration) {
		j.log.Warn("cannot begin the maintenance of this node, will retry", "job", j.e.Job, "error", err, "again_in", pause)
		j.reportWait(ctx, Result{Why: "its host cannot be put into maintenance: " + err.Error()})
	})
}

// enterService brings the node back into service.
func (j *grantedJob) enterService(ctx context.Context) error {
	if !j.e.Disturbs || j.w.o.Maintenance == nil {
		return nil
	}
	return j.w.lift(ctx, j.e.Job)
}

// finished are the tasks that the run before finished on this node, if q is to continue
// it and a task of it was interrupted here.
func (j *grantedJob) finished(q Request) []string {
	if q.RetryOf == "" || q.FromStart || q.OnManager { // the run has those of a manager
		return nil
	}
	before, err := j.r.Job(jobID(q.RetryOf, 1))
	if err != nil || before.State != workflow.Interrupted || before.Workflow != q.Workflow {
		return nil
	}
	return before.Done()
}

// spec reads what is asked for, and of a run on a manager which tasks are done, however long that takes.
func (j *grantedJob) spec(ctx context.Context) (run Run, done []string, err error) {
	never := errors.New("")
	err = concurrency.Retry(ctx, j.w.backoff(), func(ctx context.Context) error {
		doc, err := j.w.runs.spec(j.e.Run).Get(ctx)
		if err == nil && j.e.Manager {
			var own kv.Entry[Job]
			own, err = j.w.runs.jobs(j.e.Run).At(j.w.o.Node).Get(ctx)
			done = own.Value.Done
		}
		switch {
		case err == nil && doc.Exists:
			run, never = doc.Value, nil
			return nil
		case err == nil:
			never = errors.New("the run does not exist in Consul")
			return nil
		case errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer):
			never = err
			return nil
		}
		return err
	}, func(err error, pause time.Duration) {
		j.log.Warn("cannot read the run, will retry", "error", err, "again_in", pause)
		j.reportWait(ctx, Result{Why: "this node cannot read the run: " + err.Error()})
	})
	return run, done, cmp.Or(err, never)
}

// poststart is called before each task. Before the first it reports that the job
// has started, so that a job that Consul does not show as running has run nothing. Before each
// other one it reads whether the job is still asked for.
// For a job on a manager it reports each time what is done, and whether the next task may run
// elsewhere if this node is lost: the job continues only if this node still has it.
func (j *grantedJob) poststart(ctx context.Context) error {
	if err := j.asked(); err != nil {
		return err
	}
	if j.begun && !j.e.Manager && !j.trouble {
		return j.askedStill(ctx)
	}
	var finished []string
	once := ""
	if j.e.Manager {
		res, err := j.r.Job(j.e.Job)
		if err != nil {
			return err
		}
		finished, once = res.Done(), res.Once()
	}
	j.w.hook("begin")
	err := j.accept(ctx, func(r *Result) {
		if !j.begun || j.trouble {
			r.Why, r.Task = "", ""
		}
		r.State, r.Done, r.Once = Running, finished, once
		if r.Started.IsZero() {
			r.Started = stamp()
		}
	})
	j.w.hook("begun")
	if err == nil {
		j.waits = j.waits && j.begun && !j.trouble
		j.begun, j.trouble, j.once = true, false, once != ""
	}
	return err
}

// accept says that the job begins or continues, in a transaction that holds only while the node is granted what it is as far as
// this node knows, however long that takes: what was asked meanwhile counts, as this node may have been frozen or cut off. A
// job that begins depends on the cluster's control, too. It returns why the job is to end early, or ctx's error.
func (j *grantedJob) accept(ctx context.Context, change func(*Result)) (err error) {
	var ends error
	err = j.retry(ctx, func(ctx context.Context) error {
		now, _ := j.w.now.Get()
		if ends = j.askedIn(now); ends != nil {
			return nil
		}
		err := j.w.say(ctx, j.e.Job, func(t *kv.Txn) {
			t.CheckIndex(j.w.grants.Key(), now.Index)
			if !j.begun && j.control > 0 {
				t.CheckIndex(cluster.KeyControl, j.control)
			}
		}, change)
		if !errors.Is(err, kv.ErrConflict) {
			return err
		}
		e, err := j.w.grants.Get(ctx)
		if err != nil {
			return err
		}
		j.w.learn(e)
		if !j.begun {
			err = j.mayBegin(ctx)
		}
		return cmp.Or(err, kv.ErrConflict) // with what is granted now
	})
	return cmp.Or(err, ends)
}

// askedStill reads what this node is granted and returns why the job is to end early. What the watch
// delivered is not enough: this process may have been frozen (SIGSTOP, a suspended VM) or cut off
// since then, and the job cancelled meanwhile, and a process cannot know for certain whether it
// stood still. This costs one request for each task after the first.
//
// Without an answer the job continues: during an outage of Consul, or while this host is
// cut off, what was asked for before is not left half done.
func (j *grantedJob) askedStill(ctx context.Context) error {
	const patience = 5 * time.Second // in which Consul's servers elect a leader
	j.w.hook("ask")
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := j.w.grants.Get(ask)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || !e.Exists: // as for the watch, the last one counts
		return j.asked()
	}
	j.w.learn(e)
	return j.askedIn(granted{Entry: e})
}

func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// wait reports what the job waits for, and that it waits no longer: two writes,
// however long it takes. The job continues whether Consul accepts them or not. While a job
// of a manager waits no task runs, so that it may move.
func (j *grantedJob) wait(ctx context.Context, w workflow.Wait) (again bool, err error) {
	if j.waits && j.once {
		j.once = !j.trySay(ctx, func(r *Result) { r.Once = "" })
	}
	if reboots := w.Err == nil && w.Result.State == workflow.Reboot; reboots || !j.waits {
		j.waits = j.waits && !reboots // it may have waited for something else
		j.reportWait(ctx, Result{Why: strings.TrimPrefix(w.Why(), "held: "), Task: w.Result.Task, Rebooting: reboots})
		j.trouble = j.waits && w.Err != nil
	}
	if err := w.Until(ctx); err != nil {
		return false, err
	}
	if j.waits && w.Err == nil && !notYet(w.Result) {
		j.waits = !j.trySay(ctx, func(r *Result) { r.Why, r.Task = "", "" })
	}
	return true, nil
}

// notYet reports whether the task itself asked for the wait: it is run again and
// again, and its reason is reported once.
func notYet(res workflow.Result) bool {
	return res.State == workflow.Pending && slices.ContainsFunc(res.Tasks, func(t workflow.TaskStatus) bool { return t.Name == res.Task && t.Deferrals > 0 })
}

// reportWait reports why the job waits, once.
func (j *grantedJob) reportWait(ctx context.Context, w Result) {
	if !j.waits {
		j.waits = j.trySay(ctx, func(r *Result) {
			r.Why, r.Task, r.Once, r.Rebooting = text.Tail(w.Why, maxWhy), w.Task, "", w.Rebooting
		})
		j.once = j.once && !j.waits
	}
}

// trySay changes what this node says of the job if Consul answers soon: a job
// does not wait because the reason of its wait cannot be reported.
func (j *grantedJob) trySay(ctx context.Context, change func(*Result)) bool {
	const patience = 10 * time.Second
	if errors.Is(j.asked(), errGone) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := kv.RetryConflicts(ctx, func() error { return j.w.say(ctx, j.e.Job, nil, change) })
	if err != nil {
		j.log.Warn("cannot report what the run waits for", "job", j.e.Job, "error", err)
	}
	return err == nil
}

// watch ends the job early when the grants say so.
func (j *grantedJob) watch(ctx context.Context, stop func(error)) {
	_ = j.w.now.Watch(ctx, func(now granted) { // it returns ctx's error
		if err := j.askedIn(now); err != nil {
			stop(err)
		}
	})
}

// asked returns why the job is to end early as far as this node knows.
func (j *grantedJob) asked() error {
	now, _ := j.w.now.Get()
	return j.askedIn(now)
}

// askedIn returns why the job is to end early according to what is granted: errGone or errCancelled, with
// workflow.ErrKill if its running task is to end, too.
func (j *grantedJob) askedIn(now granted) error {
	e, is := now.job(j.e.Job)
	switch {
	case !is:
		return errGone
	case e.Cancel != "" && e.Kill:
		return fmt.Errorf("%w by %s (%w)", errCancelled, e.Cancel, workflow.ErrKill)
	case e.Cancel != "":
		return fmt.Errorf("%w by %s", errCancelled, e.Cancel)
	}
	return nil
}

// stop reports the end of the job.
func (j *grantedJob) stop(ctx context.Context, res workflow.Result, err error) error {
	j.w.hook("ran")
	if err == nil && (res.State == workflow.Interrupted || res.State == workflow.Stopped && res.Task == "") {
		err = j.asked() // a crash came between the end and its report
	}
	end := outcome(res)
	switch {
	case errors.Is(err, errGone):
		j.log.Info("the run is no longer asked for", "job", j.e.Job)
		return j.enterService(ctx)
	case errors.Is(err, errCancelled):
		end.State, end.Why = Cancelled, strings.TrimPrefix(err.Error(), errCancelled.Error()+" ")
	case err != nil:
		end = Result{State: Failed, Why: err.Error()}
	}
	return j.report(ctx, end)
}

// report brings the node back into service and says how the job ended, unless it is no longer granted.
func (j *grantedJob) report(ctx context.Context, end Result) error {
	if err := j.enterService(ctx); err != nil {
		return err
	}
	j.w.hook("tell")
	err := j.retry(ctx, func(ctx context.Context) error {
		if errors.Is(j.asked(), errGone) {
			return nil
		}
		return j.w.say(ctx, j.e.Job, nil, func(r *Result) {
			if r.State.Ended() {
				return // it was said before
			}
			r.State, r.Task, r.ExitCode, r.LogURL = end.State, end.Task, end.ExitCode, end.LogURL
			r.Rebooting = false
			r.Why, r.Tail, r.Ended = text.Tail(end.Why, maxWhy), text.Tail(end.Tail, maxTail), stamp()
			if j.e.Manager {
				r.Done, r.Once = end.Done, end.Once
			}
			if r.Started.IsZero() && end.State == Done {
				r.Started = r.Ended
			}
		})
	})
	j.w.hook("told")
	return err
}

// retry does what says something of the job until it succeeds, however long that takes. It returns ctx's error.
func (j *grantedJob) retry(ctx context.Context, do func(context.Context) error) error {
	return concurrency.Retry(ctx, j.w.backoff(), func(ctx context.Context) error {
		return kv.RetryConflicts(ctx, func() error { return do(ctx) })
	}, func(err error, pause time.Duration) {
		j.log.Warn("cannot report the progress of the run, will retry", "job", j.e.Job, "error", err, "again_in", pause)
	})
}

// outcome is what a job came to.
func outcome(res workflow.Result) Result {
	q := Result{State: Failed, Why: res.Why, Task: res.Task, ExitCode: res.ExitCode, Tail: res.Tail, LogURL: res.LogURL, Done: res.Done()}
	switch {
	case res.State == workflow.Success, res.State == workflow.Stopped && res.Task != "": // a task ended the job: nothing is left to do
		q.State, q.Tail = Done, res.Output
	case res.State == workflow.Stopped:
		q.State = Cancelled
	case res.State == workflow.Interrupted:
		q.Why, q.Once = "interrupted: "+q.Why, res.Task
	}
	if q.Why == "" && q.State == Failed {
		q.Why = string(res.State)
	}
	return q
}
