package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/text"
)

// maxInterruptions bounds how often a task that may be run again is: one that
// ends jorc itself would never stop.
const maxInterruptions = 10

// task brings task i as far as it goes. next says that the next one is to
// follow; otherwise the job's state says why not. The error is ctx's, or that
// nothing can be written down.
func (r *Runner) task(ctx context.Context, j *job, i int) (next bool, err error) {
	s, t := &j.spec.Steps[i], &j.rec.Tasks[i]
	want, err := r.checkOnlyIf(ctx, j, i)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		t.ExitCode = command.ExitCannotRun
		return false, r.fail(ctx, j, i, err.Error())
	case !want:
		j.setRunning()
		t.State, t.Why, t.Ended = TaskSkipped, "its only_if failed", r.now().UTC()
		r.note(j, i, string(TaskSkipped), t.Why)
		return true, r.save(j)
	}
	missing, err := r.missing(ctx, s)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		t.ExitCode = command.ExitCannotRun
		return false, r.fail(ctx, j, i, err.Error())
	case missing != "":
		return false, r.postpone(j, i, missing)
	}
	for {
		if t.State == TaskRetrying {
			if err := r.sleep(ctx, backoff(s.RetryDelay, t.Failures)); err != nil {
				return false, err
			}
		}
		again, next, err := r.try(ctx, j, i)
		if err != nil || !again {
			return next, err
		}
	}
}

// maxOutput bounds what a record keeps of the output of a task that succeeded, in
// bytes: it becomes part of runs.
const maxOutput = 1 << 10

// lastOutput returns the end of a task's output as a record keeps it: at most
// maxOutput bytes, and about as many in JSON, where a control character takes six.
// A longer record might not fit into what a full disk has left.
func lastOutput(s string) string {
	s = text.Tail(s, maxOutput)
	if encoded, err := json.Marshal(s); err != nil || len(encoded) > 2*maxOutput {
		return text.Tail(s, maxOutput/6)
	}
	return s
}

// missing says what a task waits for.
func (r *Runner) missing(ctx context.Context, s *step) (string, error) {
	switch {
	case len(s.Requires) == 0:
		return "", nil
	case r.o.Requirements == nil:
		return fmt.Sprintf("waiting for %s: there is no Consul to ask", s.Requires[0].Target), nil
	}
	return r.o.Requirements.Missing(ctx, s.Requires)
}

// Exit codes of attempts that were cut off: of one that exits with 0 after SIGTERM, and
// of one of which jorc did not see the end.
const (
	exitSIGTERM = 128 + int(syscall.SIGTERM)
	exitSIGKILL = 128 + int(syscall.SIGKILL)
)

// try makes one attempt.
func (r *Runner) try(ctx context.Context, j *job, i int) (again, next bool, err error) {
	s, t := &j.spec.Steps[i], &j.rec.Tasks[i]
	if err := r.ensureReserve(); err != nil {
		return false, false, fmt.Errorf("job %q: task %q: %w", j.spec.ID, s.Name, err)
	}
	p, u, placeErr := r.makePlace(j, i)
	defer r.removePlace(j)
	t.Attempts++
	t.State, t.Why, t.Tail, t.ExitCode, t.LeftBehind = TaskRunning, "", "", 0, nil
	t.Started = r.now().UTC()
	j.setRunning()
	j.rec.Boot = r.boot()
	r.note(j, i, string(TaskRunning), fmt.Sprintf("attempt %d", t.Attempts))
	if err := r.save(j); err != nil {
		return false, false, err
	}
	res, what, why := command.Result{ExitCode: command.ExitCannotRun}, outcomeFailed, ""
	if placeErr != nil {
		why = placeErr.Error()
	} else if res, what, why, err = r.attempt(ctx, j, i, p, u); err != nil {
		t.Tail, t.ExitCode = res.Output, cmp.Or(res.ExitCode, exitSIGTERM)
		r.removePlace(j)
		why := "jorc was stopped while it ran"
		if killed := context.Cause(ctx); errors.Is(killed, ErrKill) {
			why = killed.Error()
		}
		return false, false, r.cutOff(ctx, j, i, why, err)
	}
	r.hook("ran")
	t.Ended = r.now().UTC()
	t.ExitCode, t.Why, t.Tail = res.ExitCode, why, res.Output
	r.removePlace(j)
	return r.conclude(ctx, j, i, what, why)
}

// conclude writes down what an attempt came to.
func (r *Runner) conclude(ctx context.Context, j *job, i int, what outcome, why string) (again, next bool, err error) {
	s, t := &j.spec.Steps[i], &j.rec.Tasks[i]
	switch what {
	case outcomeFailed:
		t.Failures++
		if t.Failures > s.Retries {
			return false, false, r.fail(ctx, j, i, why)
		}
		t.State = TaskRetrying
		r.note(j, i, string(TaskRetrying), fmt.Sprintf("attempt %d: %s; again in %v", t.Attempts, why, backoff(s.RetryDelay, t.Failures)))
		return true, false, r.save(j)
	case outcomeNoReboot:
		return false, false, r.fail(ctx, j, i, why)
	case outcomeNotYet:
		t.Deferrals++
		return false, false, r.postpone(j, i, why)
	}
	t.State = TaskSuccess
	if t.Tail != "" {
		j.rec.Output = lastOutput(t.Tail)
	}
	t.Tail = ""
	r.note(j, i, string(TaskSuccess), join(why, leftRunning(t.LeftBehind)))
	switch what {
	case outcomeReboot:
		return false, false, r.suspend(j, Reboot, i, why)
	case outcomeStop:
		return false, false, r.finish(j, Stopped, i, why)
	}
	t.Why = ""
	return false, true, r.save(j)
}

func leftRunning(processes []string) string {
	if len(processes) == 0 {
		return ""
	}
	return "it left running: " + strings.Join(processes, ", ")
}

// join joins the texts that are not empty.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// postpone leaves a task for later.
func (r *Runner) postpone(j *job, i int, why string) error {
	t := &j.rec.Tasks[i]
	t.State, t.Why = TaskPending, why
	return r.suspend(j, Pending, i, why)
}

// fail ends a task and its job as failed.
func (r *Runner) fail(ctx context.Context, j *job, i int, why string) error {
	t := &j.rec.Tasks[i]
	t.State, t.Why, t.Ended = TaskFailed, why, r.now().UTC()
	if t.Attempts > 1 {
		why = fmt.Sprintf("%s (attempt %d)", why, t.Attempts)
	}
	r.note(j, i, string(TaskFailed), why)
	r.store(ctx, j, i)
	return r.finish(j, Failed, i, why)
}

// cutOff deals with a task that was cut off: if it may be run again, the job
// stays open. It returns cause when that is written down.
func (r *Runner) cutOff(ctx context.Context, j *job, i int, why string, cause error) error {
	s, t := &j.spec.Steps[i], &j.rec.Tasks[i]
	t.Interruptions++
	t.Ended = r.now().UTC()
	var err error
	switch {
	case errors.Is(context.Cause(ctx), ErrKill):
		t.State, t.Why = TaskInterrupted, why
		r.note(j, i, string(TaskInterrupted), t.Why)
		err = r.finish(j, Interrupted, i, t.Why)
	case s.Idempotent && t.Interruptions < maxInterruptions:
		t.State, t.Why = TaskInterrupted, why+"; it is idempotent and will be run again"
		r.note(j, i, string(TaskInterrupted), t.Why)
		err = r.suspend(j, Interrupted, i, t.Why)
	case s.Idempotent:
		why = fmt.Sprintf("%s, for the %dth time: it is not run again", why, t.Interruptions)
		err = r.fail(ctx, j, i, why)
	default:
		t.State, t.Why = TaskInterrupted, why+"; it is not idempotent and is not run again"
		r.note(j, i, string(TaskInterrupted), t.Why)
		r.store(ctx, j, i)
		err = r.finish(j, Interrupted, i, t.Why)
	}
	if err != nil {
		return err
	}
	return cause
}

// outcome is what an attempt came to.
type outcome int

const (
	outcomeDone outcome = iota
	outcomeFailed
	outcomeReboot
	outcomeNoReboot // the job may not have the host rebooted
	outcomeStop
	outcomeNotYet
)

// classify says what an attempt came to, and why it did not succeed. said is the
// output from the last line on that says an error; err is the command's when it could
// not be started. reboots: the job may have the host rebooted.
func classify(s *step, reboots bool, res command.Result, said string, err error) (outcome, string) {
	switch {
	case err != nil:
		return outcomeFailed, err.Error()
	case res.TimedOut:
		return outcomeFailed, fmt.Sprintf("timed out after %v", time.Duration(s.Timeout))
	case slices.Contains(s.OkExitCodes, res.ExitCode):
		return outcomeDone, ""
	case res.ExitCode == ExitReboot && !reboots:
		return outcomeNoReboot, "exit code 194: this workflow may not reboot the host: \"reboots = true\" in its configuration allows it, where a version, or a run that disturbs, runs it" + lastLine(res.Output)
	case res.ExitCode == ExitReboot:
		return outcomeReboot, "a reboot is needed" + lastLine(res.Output)
	case res.ExitCode == ExitStop:
		return outcomeStop, "the task requested to stop here" + lastLine(res.Output)
	case res.ExitCode == ExitNotYet:
		return outcomeNotYet, "not yet" + lastLine(res.Output)
	}
	why := fmt.Sprintf("exit code %d", res.ExitCode)
	if n := res.ExitCode - 128; n > 0 && n <= 64 {
		why += fmt.Sprintf(" (signal %d)", n)
	}
	return outcomeFailed, why + reason(said, res.Output)
}

const (
	firstRetry = time.Second
	maxRetry   = 5 * time.Minute
)

// backoff is the pause after the nth failure (from 1): first, or a second, then
// twice as long each time, up to five minutes or first if that is longer.
func backoff(first time.Duration, n int) time.Duration {
	if first <= 0 {
		first = firstRetry
	}
	return concurrency.Delay(first, max(maxRetry, first), n)
}
