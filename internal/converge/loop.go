package converge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// loop decides and acts until ctx ends, or a single pass has its outcome.
func (c *Converger) loop(ctx context.Context) error {
	defer c.endErrands()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.observe()
		c.writeDown()
		c.handOn() // what a restart would not know is reported only when the disk fails
		f := c.facts()
		d := decide(f, c.now())
		c.keepErrands(ctx, d)
		if d.waiting != "" {
			c.reportPending(f, &d)
		}
		c.publish(f, d)
		switch {
		case d.do != doNothing:
			c.act(ctx, f, d.do)
		case c.once && d.outcome != "" && !c.unsaved && (f.told || d.outcome == Held):
			return nil
		case f.unsaved || !c.unsaved: // else there is something to write down
			c.await(ctx, d.until)
		}
	}
}

// await returns when something may have to be decided anew.
func (c *Converger) await(ctx context.Context, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(max(until.Sub(c.now()), time.Millisecond))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-c.wake:
	case <-due:
	}
}

// facts gathers what is known.
func (c *Converger) facts() *facts {
	local := c.readVersion()
	f := &facts{
		mem: c.mem, p: c.p, unsaved: c.unsaved, local: local, drifted: c.drift.paths(),
		once: c.once, requires: len(c.o.Requires) > 0 && c.o.Requirements != nil, admission: c.o.Admission != nil,
		checks: c.o.Checks != nil, cycles: c.o.Cycle != nil, static: c.o.Static.Workflow != "",
		settle: c.timing.settle, patience: c.timing.patience, cycleAfter: c.timing.cycle,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.inputs = c.in
	f.told = c.in.said >= c.gen && c.report.equal(c.p.Report)
	return f
}

// readVersion reads the version file. What it cannot tell is no version.
func (c *Converger) readVersion() string {
	version, err := cluster.ReadVersionFile(c.o.VersionFile)
	note := ""
	if err != nil && !errors.Is(err, cluster.ErrNoVersion) {
		note = err.Error() + ": this host counts as one without a version, and converges"
	}
	if note != "" && note != c.note {
		c.log.Warn("version file", "error", note)
	}
	c.mu.Lock()
	c.note = note
	c.mu.Unlock()
	return version
}

// act does one thing. What cannot be done is tried again after a pause.
func (c *Converger) act(ctx context.Context, f *facts, do action) {
	c.hook(string(do))
	var err error
	switch do {
	case doNothing:
	case doAdopt:
		err = c.adopt(f.local)
	case doBegin:
		err = c.begin(ctx, f.desired)
	case doStatic:
		err = c.runStatic(ctx)
	case doDrop:
		err = c.drop(ctx, f.desired)
	case doValidate:
		err = c.runValidation(ctx)
	case doPass:
		c.passed()
	case doInvalid:
		c.invalid(f.checksWhy(), "", true)
	case doRecord:
		err = c.record(ctx)
	case doLeft:
		c.p.Entered, c.unsaved = "", true
	}
	if ctx.Err() != nil {
		return
	}
	c.hook(string(do) + " done")
	c.took(do, err)
}

func (f *facts) checksWhy() string {
	return fmt.Sprintf("health checks fail: %s", list(f.failing))
}

// writeDown saves what changed. While it cannot be nothing is begun, and it is
// tried again.
func (c *Converger) writeDown() {
	m := &c.mem
	if !c.unsaved || c.now().Before(m.saveAt) {
		return
	}
	c.hook("save")
	err := c.save()
	if err == nil {
		m.saveAt, m.saveIs, m.saves = time.Time{}, "", 0
		c.hook("saved")
		return
	}
	if text := err.Error(); text != m.saveIs {
		c.log.Error("convergence waits and tries again", "error", text)
		m.saveIs = text
	}
	if a := c.p.Attempt; a.open() || a.Stage == stageRecording {
		_ = c.stuckWith(err) // reports it
	} else if version := c.due(); version != "" {
		_ = c.stuckAt(version, err)
	}
	m.saves++
	m.saveAt = c.now().Add(doubled(c.timing.trouble, c.timing.maxTrouble, m.saves))
}

// due is the version that nothing but the disk keeps from being begun; empty:
// there is none.
func (c *Converger) due() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.in.desiredKnown || c.in.desired == c.p.Attempt.Version || len(c.in.missing) > 0 || c.o.Admission != nil && c.p.Entered != c.in.desired {
		return ""
	}
	return c.in.desired
}

// took notes how an action went.
func (c *Converger) took(do action, err error) {
	m := &c.mem
	if err == nil {
		m.trouble, m.troubles, m.troubleIs = doNothing, 0, ""
		return
	}
	if m.trouble != do {
		m.trouble, m.troubles = do, 0
	}
	if text := err.Error(); text != m.troubleIs {
		c.log.Warn("convergence waits and tries again", "step", string(do), "error", text)
		m.troubleIs = text
	}
	m.troubles++
	m.troubleAt = c.now().Add(doubled(c.timing.trouble, c.timing.maxTrouble, m.troubles))
}

// doubled is first, doubled with each of n after the first one, up to most.
func doubled(first, most time.Duration, n int) time.Duration {
	for ; n > 1 && first < most; n-- {
		first *= 2
	}
	return min(first, most)
}

// retryPause is the pause after the nth failed attempt (from 1), give or take
// a fifth: not all hosts at once.
func (c *Converger) retryPause(n int) time.Duration {
	d := doubled(c.timing.firstRetry, c.timing.maxRetry, n)
	return time.Duration(float64(d) * (0.8 + 0.4*c.jitter()))
}
