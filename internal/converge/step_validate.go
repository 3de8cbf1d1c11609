package converge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/workflow"
)

// runValidation runs or continues the validation workflow.
func (c *Converger) runValidation(ctx context.Context) error {
	if c.o.Static.Validation == "" {
		c.validated()
		return nil
	}
	a := &c.p.Attempt
	if a.Validation == "" {
		old := c.p
		a.Validation = c.p.nextJob(validationJob, a.Version)
		if err := c.save(); err != nil {
			c.p = old
			return c.notValidated(err)
		}
		c.hook("validation begun")
	}
	c.drift.hush(ctx)
	defer c.drift.unhush(ctx)
	res, err := c.o.Runner.Run(ctx, workflow.Job{
		ID: a.Validation, Workflow: c.o.Static.Validation, Version: a.Version, Origin: Origin, Between: c.between(a.Version),
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if errors.Is(err, workflow.ErrUnknown) || errors.Is(err, workflow.ErrInvalid) || errors.Is(err, workflow.ErrDamaged) {
			a.Validation = ""
			c.invalid("validation: "+err.Error(), "", false)
			return nil
		}
		return c.notValidated(err)
	}
	v := classify(res)
	if res.State == workflow.Interrupted && !res.Open {
		a.Validation, c.unsaved = "", true // it proves nothing, and validating again is harmless
		return errors.New("validation was " + v.why)
	}
	switch v.what {
	case jobPassed:
		c.hook("validation passed")
		if a.Stage == stageDone {
			defer c.forget(a.Validation)
		}
		c.validated()
	case jobFailed:
		a.Validation = ""
		c.invalid("validation: "+v.detail(), v.logURL, false)
	case jobReplaced:
		if a.open() {
			c.dropped()
			return nil
		}
		a.Validation, c.unsaved = "", true
	case jobPending:
		c.restFor(restReady, v.why)
	case jobReboot:
		c.restFor(restReboot, "waits for a reboot of this host: "+v.why)
	case jobAgain:
		return c.heldBack(v)
	}
	return nil
}

// notValidated is for what keeps a validation from being run. Of an attempt that
// is reported; what was good before is not known to be worse.
func (c *Converger) notValidated(err error) error {
	if c.p.Attempt.open() {
		return c.stuckWith(err)
	}
	return err
}

// validated notes that the validation workflow passed; the checks are still to
// be asked when it is about an attempt.
func (c *Converger) validated() {
	a := &c.p.Attempt
	now := c.now()
	a.Validation, a.Validated = "", now.UTC().Truncate(time.Second)
	c.mem.rest, c.mem.validateAt, c.unsaved = restNone, now.Add(c.o.Static.ValidationInterval), true
	if a.Stage != stageDone {
		a.Stage, a.Passed = stageValidating, true
	}
}

// forget removes a job that only says that all is well: there are many of them,
// and they would push those out that say more.
func (c *Converger) forget(job string) {
	if err := c.o.Runner.Forget(job); err != nil && !errors.Is(err, workflow.ErrNoJob) {
		c.log.Warn("a validation that passed stays behind", "job", job, "error", err)
	}
}

// passed is the end of validation: nothing speaks against the version.
func (c *Converger) passed() {
	c.p.Attempt.Stage, c.p.Attempt.Passed = stageRecording, false
	c.unsaved = true
}

// invalid ends an attempt, or what has been good, because the host does not
// work. The static workflow runs again: at once when that is news, after a
// pause when it did not help lately.
func (c *Converger) invalid(why, logURL string, checks bool) {
	a := &c.p.Attempt
	now := c.now()
	c.mem.rest, c.mem.validateAt, c.unsaved = restNone, now.Add(c.o.Static.ValidationInterval), true
	from := a.Stage
	a.Stage, a.Passed, a.Checks = stageInvalid, false, checks
	a.Validated = now.UTC().Truncate(time.Second)
	if a.Invalid {
		return // the next attempt is due when it was
	}
	a.Invalid = true
	stable := from == stageDone && (a.Arrived.IsZero() || now.Sub(a.Arrived) > c.timing.maxRetry || now.Before(a.Arrived))
	if stable {
		a.Fails = 0
	}
	a.Fails++
	a.Why = firstLine(why)
	var pause time.Duration
	switch {
	case !stable:
		pause = c.retryPause(a.Fails)
	case checks:
		pause = c.timing.settle // they may recover by themselves
	}
	c.mem.retryAt = now.Add(pause)
	c.log.Error("this host does not work as it should", "version", a.Version, "why", a.Why, "static_workflow_in", pause)
	r := c.p.Report
	r.Validation = &cluster.CategoryState{State: cluster.StateFailed, Version: a.Version, Detail: why, LogURL: logURL, NextTry: c.nextTry()}
	if from == stageValidating && a.Job != "" {
		r.Config, r.Instead = &cluster.CategoryState{State: cluster.StateSuccess, Version: a.Version, Suspect: a.Suspect}, nil
	}
	c.setReport(r)
}

// suspicion says why a success is doubtful: it took more than one go.
func (a attempt) suspicion() string {
	if a.Fails == 0 {
		return a.Suspect
	}
	again := fmt.Sprintf("passed after %d failed attempts, the last one: %s", a.Fails, a.Why)
	if a.Fails == 1 {
		again = "passed after a failed attempt: " + a.Why
	}
	return suspectWith(a.Suspect, again)
}

// outcomes of jobs.
const (
	jobPassed   = iota
	jobFailed   // also: interrupted, or ended by hand
	jobPending  // something is missing
	jobReboot   // continues after a reboot
	jobReplaced // ended here: another version is wanted
	jobAgain    // may continue: held, or interrupted and idempotent
)

// verdict is what a job means for the attempt.
type verdict struct {
	what    int
	why     string // one line
	tail    string // of the output
	logURL  string
	suspect string // tasks that passed, but not at the first go
}

// classify says what a job's result means.
//
// A job that one of its tasks stopped (exit code 195) passed: the task said on
// purpose that nothing after it is to be done here, and validation decides
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
	case workflow.Pending:
		v.what = jobPending
	case workflow.Reboot:
		v.what = jobReboot
	case workflow.Held, workflow.Running:
		v.what = jobAgain
	case workflow.Interrupted:
		v.what, v.why = jobFailed, "interrupted: "+v.why
		if res.Open {
			v.what = jobAgain
		}
	default:
		v.what = jobFailed
		if res.ExitCode > 0 && !strings.Contains(v.why, "exit code") {
			v.why += fmt.Sprintf(" (exit code %d)", res.ExitCode)
		}
	}
	return v
}

// detail is for the ledger: why, and the end of what the task printed.
func (v verdict) detail() string {
	if tail := strings.TrimSpace(v.tail); tail != "" {
		return v.why + "\n" + tail
	}
	return v.why
}
