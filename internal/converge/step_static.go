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

// adopt takes over a version in the version file that another program
// else brought: it is recorded once it passed validation.
func (c *Converger) adopt(version string) error {
	c.log.Info("this host runs a version that somebody else brought; it is validated", "version", version)
	c.p.Attempt = attempt{Version: version, Stage: stageValidating}
	c.unsaved = true
	c.drift.stop()
	c.freshChecks()
	return nil
}

// begin makes a new attempt. Its job has its name on the disk before it exists:
// the next process continues the same one after a crash.
func (c *Converger) begin(ctx context.Context, version string) error {
	old := c.p
	a := attempt{Version: version, Stage: stageStatic}
	if old.Attempt.Version == version {
		a.Fails, a.Why, a.Arrived = old.Attempt.Fails, old.Attempt.Why, old.Attempt.Arrived
	}
	if v := old.Attempt.Validation; v != "" {
		if err := c.abandon(ctx, v, "the static workflow runs again"); err != nil {
			return err
		}
	}
	a.Job = c.p.nextJob(staticJob, version)
	c.p.Attempt, c.p.Waiting = a, ""
	c.p.Report.Config, c.p.Report.Instead = &cluster.CategoryState{State: cluster.StateRunning, Version: version}, nil
	if err := c.save(); err != nil {
		c.p = old
		return c.stuckAt(version, err)
	}
	c.hook("begun")
	c.log.Info("converging", "version", version, "job", a.Job, "failed_before", a.Fails)
	c.drift.stop()
	c.mem.rest, c.mem.retryAt = restNone, c.now()
	c.passReport()
	c.awaitReported(ctx)
	return nil
}

// runStatic runs or continues the static workflow.
func (c *Converger) runStatic(ctx context.Context) error {
	a := c.p.Attempt
	res, err := c.o.Runner.Run(ctx, workflow.Job{
		ID: a.Job, Workflow: c.o.Static.Workflow, Version: a.Version, Origin: Origin, Between: c.between(a.Version),
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if errors.Is(err, workflow.ErrUnknown) || errors.Is(err, workflow.ErrInvalid) || errors.Is(err, workflow.ErrDamaged) {
			c.failed(verdict{why: err.Error()})
			return nil
		}
		return c.stuckWith(err)
	}
	v := classify(res)
	switch v.what {
	case jobPassed:
		c.hook("static passed")
		c.p.Attempt.Stage, c.p.Attempt.Suspect = stageValidating, v.suspect
		c.mem.rest, c.unsaved = restNone, true
		c.freshChecks()
	case jobFailed:
		c.failed(v)
	case jobReplaced:
		c.dropped()
	case jobPending:
		c.restFor(restReady, v.why)
		c.reportStuck(cluster.CategoryState{State: cluster.StatePending, Detail: v.why}, "task "+res.Task)
	case jobReboot:
		c.restFor(restReboot, "waits for a reboot of this host: "+v.why)
		c.setConfig(cluster.CategoryState{State: cluster.StateRunning, Version: a.Version, Detail: "reboots: " + v.why})
	case jobAgain:
		return c.heldBack(v)
	}
	return nil
}

// heldBack is for jobs that may continue, now or when a hold ends. The hold may
// not be known here yet.
func (c *Converger) heldBack(v verdict) error {
	c.mem.rest = restNone
	c.mu.Lock()
	held := c.in.hold.Held
	c.mu.Unlock()
	if held != "" {
		return nil
	}
	return errors.New(v.why)
}

// between ends a job between two tasks when another version is wanted.
func (c *Converger) between(version string) func(context.Context) error {
	return func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.in.desiredKnown && c.in.desired != "" && c.in.desired != version {
			return fmt.Errorf("%s %s", replacedBy, c.in.desired)
		}
		return nil
	}
}

// replacedBy begins the reason for which a job was ended here.
const replacedBy = "another version is wanted now:"

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
	c.log.Info("another version is wanted; this attempt ends here", "version", c.p.Attempt.Version)
	a := &c.p.Attempt
	a.Stage, a.Validation, a.Passed = stageDropped, "", false
	c.mem.rest, c.unsaved = restNone, true
}

// failed ends an attempt whose static workflow failed.
func (c *Converger) failed(v verdict) {
	a := &c.p.Attempt
	a.Stage, a.Why = stageFailed, v.why
	a.Fails++
	pause := c.retryPause(a.Fails)
	c.mem.retryAt, c.mem.rest = c.now().Add(pause), restNone
	c.log.Error("the static workflow failed", "version", a.Version, "job", a.Job, "why", v.why, "again_in", pause)
	c.unsaved = true
	c.setConfig(cluster.CategoryState{State: cluster.StateFailed, Version: a.Version, Detail: v.detail(), LogURL: v.logURL, NextTry: c.nextTry()})
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
		c.reportStuck(cluster.CategoryState{State: cluster.StateFailed, Version: version, Detail: "cannot go on, and tries again: " + text}, "stuck: "+text)
	}
	return err
}

func (c *Converger) restFor(r rest, why string) {
	c.mem.rest, c.mem.restWhy = r, why
	c.input(func(in *inputs) { in.ready = "" })
}
