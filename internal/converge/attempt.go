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

// adopt takes over a version in the version file that another
// program installed: it is recorded once it passed validation.
func (c *Converger) adopt(version string) error {
	c.log.Info("another program installed the version that this host runs; validating it", "version", version)
	c.p.Attempt = attempt{Version: version, Stage: stageValidating}
	c.unsaved = true
	c.drift.stop()
	c.freshChecks()
	return nil
}

// begin makes a new attempt, or continues the one that was interrupted. Its job has
// its name on the disk before it exists: the next process continues the same one after
// a crash.
func (c *Converger) begin(ctx context.Context, version string) error {
	old := c.p
	a := attempt{Version: version, Stage: stageStatic}
	if old.Attempt.Version == version {
		a.Fails, a.Why, a.Arrived = old.Attempt.Fails, old.Attempt.Why, old.Attempt.Arrived
		if old.Attempt.Again == againContinue {
			a = old.Attempt
			a.Stage, a.Cut, a.Again = a.Cut, "", ""
		}
	}
	if v := old.Attempt.Validation; v != "" {
		if err := c.abandon(ctx, v, "the static workflow runs again"); err != nil {
			return err
		}
	}
	if a.Stage == stageStatic {
		a.Job = c.p.nextJob(staticJob, version)
		c.p.Report.Config, c.p.Report.Instead = &cluster.CategoryState{State: cluster.StateRunning, Version: version}, nil
	}
	c.p.Attempt, c.p.Waiting = a, ""
	if err := c.save(); err != nil {
		c.p = old
		return c.stuckAt(version, err)
	}
	c.hook("begun")
	c.log.Info("converging", "version", version, "job", a.Job, "failed_before", a.Fails)
	c.drift.stop()
	c.mem.retryAt = c.now()
	c.passReport()
	c.awaitReported(ctx)
	return nil
}

// drop ends the open attempt for good.
func (c *Converger) drop(ctx context.Context, desired string) error {
	a := c.p.Attempt
	for _, job := range []string{a.Job, a.Validation} {
		if job == "" || job == a.Job && a.Stage != stageStatic {
			continue
		}
		if err := c.abandon(ctx, job, replacedBy+" "+desired); err != nil {
			return err
		}
	}
	c.dropped()
	return nil
}

func (c *Converger) abandon(ctx context.Context, job, why string) error {
	_, err := c.o.Runner.Abandon(ctx, job, why)
	if errors.Is(err, workflow.ErrNoJob) || errors.Is(err, workflow.ErrDamaged) {
		return nil
	}
	return err
}

func (c *Converger) dropped() {
	c.log.Info("another version is desired; this attempt ends here", "version", c.p.Attempt.Version)
	a := &c.p.Attempt
	a.Stage, a.Validation, a.Passed = stageDropped, "", false
	c.unsaved = true
}

// staticEnded draws the conclusions from the static workflow.
func (c *Converger) staticEnded(v verdict) {
	switch v.what {
	case jobPassed:
		c.hook("static passed")
		c.p.Attempt.Stage, c.p.Attempt.Suspect, c.p.Attempt.Done = stageValidating, v.suspect, nil
		c.unsaved = true
		c.freshChecks()
	case jobFailed:
		c.failed(v)
	case jobInterrupted:
		c.interrupted(v)
	case jobReplaced:
		c.dropped()
	}
}

// failed ends an attempt whose static workflow failed.
func (c *Converger) failed(v verdict) {
	a := &c.p.Attempt
	a.Stage, a.Why = stageFailed, v.why
	a.Fails++
	pause := c.retryPause(a.Fails)
	c.mem.retryAt = c.now().Add(pause)
	c.log.Error("the static workflow failed", "version", a.Version, "job", a.Job, "why", v.why, "again_in", pause)
	c.unsaved = true
	c.setConfig(cluster.CategoryState{State: cluster.StateFailed, Version: a.Version, Detail: v.detail(), LogURL: v.logURL, NextTry: c.nextTry()})
}

// interrupted ends an attempt of which a task was cut off that may not run again by itself.
// It waits for an operator, or for another version.
func (c *Converger) interrupted(v verdict) {
	a := &c.p.Attempt
	v.why += fmt.Sprintf("; 'jorc update retry %s' continues with this task, --from-start runs the whole workflow", c.o.Node)
	a.Cut, a.Stage, a.Done, a.Why = a.Stage, stageInterrupted, v.done, v.why
	a.Fails++
	c.log.Error("the workflow was interrupted and waits for an operator", "version", a.Version, "why", v.why)
	c.unsaved = true
	s := cluster.CategoryState{State: cluster.StateFailed, Version: a.Version, Detail: v.detail(), LogURL: v.logURL}
	if a.Cut == stageStatic {
		c.setConfig(s)
		return
	}
	c.reportInvalid(s, a.Cut)
}

// reportInvalid reports that a validation did not pass, from a stage on. What the static
// workflow did passed.
func (c *Converger) reportInvalid(s cluster.CategoryState, from stage) {
	a, r := &c.p.Attempt, c.p.Report
	r.Validation = &s
	if from == stageValidating && a.Job != "" {
		r.Config, r.Instead = &cluster.CategoryState{State: cluster.StateSuccess, Version: a.Version, Suspect: a.Suspect}, nil
	}
	c.setReport(r)
}

// nextTry is when the next attempt is due, as reports hold it.
func (c *Converger) nextTry() time.Time { return c.mem.retryAt.UTC().Truncate(time.Second) }

// stuckWith reports what keeps the attempt from continuing: it continues later,
// from where it is.
func (c *Converger) stuckWith(err error) error { return c.stuckAt(c.p.Attempt.Version, err) }

// stuckAt is stuckWith for an attempt at version. That another job runs is no
// news.
func (c *Converger) stuckAt(version string, err error) error {
	if !errors.Is(err, workflow.ErrBusy) {
		text := strings.TrimSpace(err.Error())
		c.reportStuck(cluster.CategoryState{State: cluster.StateFailed, Version: version, Detail: "stuck, will retry: " + text}, "stuck: "+text)
	}
	return err
}

// validate starts or continues the validation workflow.
func (c *Converger) validate(ctx context.Context) error {
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
	c.startJob(ctx, a.Validation, c.o.Static.Validation)
	return nil
}

// validationEnded draws the conclusions from the validation workflow.
func (c *Converger) validationEnded(v verdict) {
	a := &c.p.Attempt
	job := a.Validation
	a.Validation, a.Done, c.unsaved = "", nil, true
	switch v.what {
	case jobPassed:
		c.hook("validation passed")
		if a.Stage == stageDone {
			defer c.forget(job)
		}
		c.validated()
	case jobFailed:
		c.invalid("validation: "+v.detail(), v.logURL, false)
	case jobReplaced:
		if a.open() {
			c.dropped()
		}
	case jobInterrupted:
		if a.open() {
			c.interrupted(v)
			return
		}
		c.log.Warn("validation was interrupted; it runs again when it is due", "job", job, "why", v.why)
		now := c.now()
		a.Validated = now.UTC().Truncate(time.Second)
		c.mem.validateAt = now.Add(c.o.Static.ValidationInterval)
	}
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
	a.Validated = now.UTC().Truncate(time.Second)
	c.mem.validateAt, c.unsaved = now.Add(c.o.Static.ValidationInterval), true
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
	c.mem.validateAt, c.unsaved = now.Add(c.o.Static.ValidationInterval), true
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
	c.reportInvalid(cluster.CategoryState{State: cluster.StateFailed, Version: a.Version, Detail: why, LogURL: logURL, NextTry: c.nextTry()}, from)
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
