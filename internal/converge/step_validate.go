package converge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/workflow"
)

// runValidation runs the validation workflow, or goes on with it.
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
	v := judge(res)
	if res.State == workflow.Interrupted && !res.Open {
		a.Validation, c.unsaved = "", true // it tells nothing, and looking again harms nobody
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
