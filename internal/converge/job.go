package converge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/workflow"
)

// jobStatus is the attempt's job as its driver reports it.
type jobStatus struct {
	id       string         // empty: no job is driven
	wait     *workflow.Wait // why it cannot continue now
	stopping bool           // it is to end early
	ended    bool
	result   workflow.Result
	err      error // why it could not be run, or ended early
}

// reboots reports whether the job waits for a reboot of the host.
func (j jobStatus) reboots() bool {
	return j.wait != nil && j.wait.Err == nil && j.wait.Result.State == workflow.Reboot
}

// trouble is why the job cannot be run at present; empty: it can.
func (j jobStatus) trouble() string {
	if j.wait == nil || j.wait.Err == nil {
		return ""
	}
	return j.wait.Err.Error()
}

// waitReason is why a job waits, in one line.
func waitReason(w *workflow.Wait) string {
	if w.Err != nil {
		return w.Err.Error()
	}
	return classify(w.Result).why
}

// startJob starts the driver of a job of the attempt. The driver runs until the job
// has ended or ctx does.
func (c *Converger) startJob(ctx context.Context, id, name string) {
	a := c.p.Attempt
	ctx, cancel := context.WithCancel(ctx)
	t := &task{about: id, cancel: cancel, done: make(chan struct{})}
	stops := make(chan error, 1)
	c.tasks[jobTask], c.stopJob = t, stops
	c.input(func(in *inputs) { in.job = jobStatus{id: id} })
	begin, end := func() {}, func() {}
	if id == a.Validation {
		begin, end = func() { c.drift.suspend(ctx) }, func() { c.drift.resume(ctx) }
	}
	hooks := workflow.Hooks{
		Poststart: func(context.Context) error { return c.stillDesired(a.Version) },
		Watch: func(ctx context.Context, stop func(error)) {
			select {
			case why := <-stops:
				stop(why)
			case <-ctx.Done():
			}
		},
		Wait: func(ctx context.Context, w workflow.Wait) (bool, error) {
			end()
			defer begin()
			c.input(func(in *inputs) { in.job.wait = &w })
			if c.once && w.Err == nil && (w.Result.State == workflow.Held || w.Result.State == workflow.Reboot) {
				<-ctx.Done() // a single pass ends here
			}
			err := w.Until(ctx)
			c.input(func(in *inputs) { in.job.wait = nil })
			return err == nil, err
		},
	}
	go func() {
		defer close(t.done)
		begin()
		defer end()
		res, err := c.o.Runner.Drive(ctx, workflow.Job{ID: id, Workflow: name, Version: a.Version, Origin: Origin, Done: a.Done, Out: a.Stage == stageStatic}, hooks)
		if ctx.Err() == nil {
			c.input(func(in *inputs) { in.job = jobStatus{id: id, ended: true, result: res, err: err} })
		}
	}()
}

// jobTask is the task that drives a job.
const jobTask = "job"

// replacedBy begins the reason for which a job was ended here.
const replacedBy = "another version is desired now:"

// stillDesired returns the reason for which a job for version is to end.
func (c *Converger) stillDesired(version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in.desiredKnown && c.in.desired != "" && c.in.desired != version {
		return fmt.Errorf("%s %s", replacedBy, c.in.desired)
	}
	return nil
}

// endJobEarly has the driver end its job before the next task.
func (c *Converger) endJobEarly(f *facts) {
	why := c.stillDesired(c.p.Attempt.Version)
	if why == nil {
		why = errors.New("the static workflow runs again")
	}
	c.stopJob <- why
	c.input(func(in *inputs) { in.job.stopping = true })
}

// jobEnded draws the conclusions from a job that has ended.
func (c *Converger) jobEnded(ctx context.Context, j jobStatus) error {
	v := classify(j.result)
	switch {
	case errors.Is(j.err, workflow.ErrUnknown), errors.Is(j.err, workflow.ErrInvalid), errors.Is(j.err, workflow.ErrDamaged):
		v = verdict{what: jobFailed, why: j.err.Error()}
	case j.err != nil: // it was stopped; Drive only logs that it could not write that
		if err := c.abandon(ctx, j.id, j.err.Error()); err != nil {
			return err
		}
		v.what = jobReplaced
	}
	<-c.tasks[jobTask].done
	delete(c.tasks, jobTask)
	c.input(func(in *inputs) { in.job = jobStatus{} })
	if j.id == c.p.Attempt.Job {
		c.staticEnded(v)
	} else {
		c.validationEnded(v)
	}
	return nil
}

// reportWait reports that the job of the open attempt cannot continue now.
func (c *Converger) reportWait(w *workflow.Wait) {
	why := waitReason(w)
	switch static := c.p.Attempt.Stage == stageStatic; {
	case w.Err != nil && c.mem.saveIs != "": // the disk is reported; both in turn would be a write each time
	case w.Err != nil:
		_ = c.stuckWith(w.Err)
	case static && w.Result.State == workflow.Pending:
		c.reportStuck(cluster.CategoryState{State: cluster.StatePending, Detail: why}, "task "+w.Result.Task)
	case static && w.Result.State == workflow.Reboot:
		c.setConfig(cluster.CategoryState{State: cluster.StateRunning, Version: c.p.Attempt.Version, Detail: "reboots: " + why})
	}
}

// outcomes of jobs.
const (
	jobPassed      = iota
	jobFailed      // also: ended by hand
	jobInterrupted // and not idempotent
	jobReplaced    // ended here: another version is desired
)

// verdict is what a job means for the attempt.
type verdict struct {
	what    int
	why     string // one line
	tail    string // of the output
	logURL  string
	suspect string   // tasks that passed, but not at the first go
	done    []string // tasks that an interrupted job finished
}

// classify says what a job's result means.
//
// A job that one of its tasks stopped (exit code 195) passed: the task
// requested that nothing after it runs here, and validation decides
// whether the host works. Counted as a failure it would be run, and stop, for ever.
func classify(res workflow.Result) verdict {
	v := verdict{why: res.Why, tail: res.Tail, logURL: res.LogURL}
	if res.Task != "" {
		v.why = fmt.Sprintf("task %q: %s", res.Task, res.Why)
	}
	if len(res.Suspect) > 0 {
		v.suspect = "failed before it passed: task " + strings.Join(res.Suspect, ", ")
	}
	switch res.State {
	case workflow.Success:
		v.what = jobPassed
	case workflow.Stopped:
		switch {
		case res.Task != "":
			v.what = jobPassed
		case strings.HasPrefix(res.Why, replacedBy):
			v.what = jobReplaced
		default:
			v.what, v.why = jobFailed, "the job was ended by hand: "+res.Why
		}
	case workflow.Interrupted:
		v.what, v.why, v.done = jobInterrupted, "interrupted: "+v.why, res.Done()
	default:
		v.what = jobFailed
		if res.State == workflow.Failed && res.ExitCode > 0 && !strings.Contains(v.why, "exit code") {
			v.why += fmt.Sprintf(" (exit code %d)", res.ExitCode)
		}
	}
	return v
}

// detail is for the report: why, and the end of what the task printed.
func (v verdict) detail() string {
	if tail := strings.TrimSpace(v.tail); tail != "" {
		return v.why + "\n" + tail
	}
	return v.why
}
