package converge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/text"
)

// loop decides and acts until ctx ends, or a single pass has its outcome.
func (c *Converger) loop(ctx context.Context) error {
	defer c.endTasks()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.observe()
		f, d := c.next()
		c.keepTasks(ctx, d)
		if d.waiting != "" {
			c.reportPending(f, &d)
		}
		c.publish(f, d)
		switch {
		case d.do != doNothing:
			c.act(ctx, f, d.do)
		case c.once && d.outcome != "" && !c.unsaved && (f.stored || d.outcome == Held):
			return nil
		case f.unsaved || !c.unsaved: // else there is something to write down
			c.await(ctx, d.until)
		}
	}
}

// next saves what changed and decides what to do. What the action saves itself,
// before anything follows from it, is not saved twice.
func (c *Converger) next() (*facts, decision) {
	if c.unsaved && c.mem.saveIs == "" {
		f := c.facts()
		f.unsaved = false
		if d := decide(f, c.now()); d.do == doBegin || d.do == doPass || d.do == doValidate && c.p.Attempt.Validation == "" {
			return f, d
		}
	}
	c.saveProgress()
	c.passReport() // what a restart would not know is reported only when the disk fails
	f := c.facts()
	return f, decide(f, c.now())
}

// await returns when a decision may be due.
func (c *Converger) await(ctx context.Context, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(max(until.Sub(c.now()), time.Millisecond))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-c.wake.C():
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
	f.stored = c.in.storedGen >= c.gen && c.report.equal(c.p.Report)
	return f
}

// versionFile is what the version file held, and which file that was.
type versionFile struct {
	version string
	info    durable.Info
	read    time.Time
}

// settled is for how long a file has not changed when its times show each later change:
// file systems round them.
const settled = 2 * time.Second

// is reports whether the file is certainly the one that was read.
func (v versionFile) is(info durable.Info) bool {
	changed := time.Unix(0, max(info.Modified, info.Changed))
	return info == v.info && v.read.Sub(changed) > settled
}

// readVersion reads the version file. A file that cannot be read counts as no version.
func (c *Converger) readVersion() string {
	v := versionFile{read: time.Now()}
	if info, err := os.Stat(c.o.VersionFile); err == nil {
		if v.info = durable.InfoOf(info); c.version.is(v.info) {
			return c.version.version
		}
	}
	var err error
	v.version, err = ReadVersionFile(c.o.VersionFile)
	if c.version = v; err != nil {
		c.version.info = durable.Info{} // it is read again
	}
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
	return v.version
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
		c.startJob(ctx, c.p.Attempt.Job, c.o.Static.Workflow)
	case doDrop:
		err = c.drop(ctx, f.desired)
	case doValidate:
		err = c.validate(ctx)
	case doStop:
		c.endJobEarly(f)
	case doEnded:
		err = c.jobEnded(ctx, f.job)
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
	if c.tasks[jobTask] == nil { // else the job's tasks run by now
		c.hook(string(do) + " done")
	}
	c.noteResult(do, err)
}

func (f *facts) checksWhy() string {
	return fmt.Sprintf("health checks fail: %s", text.Few("; ", f.failing, 5))
}

// saveProgress saves what changed. While it cannot be nothing is begun, and it is
// tried again.
func (c *Converger) saveProgress() {
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
		c.log.Error("convergence is stuck, will retry", "error", text)
		m.saveIs = text
	}
	if a := c.p.Attempt; a.open() || a.Stage == stageRecording {
		_ = c.stuckWith(err) // reports it
	} else if version := c.due(); version != "" {
		_ = c.stuckAt(version, err)
	}
	m.saves++
	m.saveAt = c.now().Add(concurrency.Delay(c.timing.trouble, c.timing.maxTrouble, m.saves))
}

// due is the version that nothing but the disk keeps from being begun; empty:
// no such version exists.
func (c *Converger) due() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.in.desiredKnown || c.in.desired == c.p.Attempt.Version || len(c.in.missing) > 0 || c.o.Admission != nil && c.p.Entered != c.in.desired {
		return ""
	}
	return c.in.desired
}

// noteResult notes how an action went.
func (c *Converger) noteResult(do action, err error) {
	m := &c.mem
	if err == nil {
		m.trouble, m.troubles, m.troubleIs = doNothing, 0, ""
		return
	}
	if m.trouble != do {
		m.trouble, m.troubles = do, 0
	}
	if text := err.Error(); text != m.troubleIs {
		c.log.Warn("convergence is stuck, will retry", "step", string(do), "error", text)
		m.troubleIs = text
	}
	m.troubles++
	m.troubleAt = c.now().Add(concurrency.Delay(c.timing.trouble, c.timing.maxTrouble, m.troubles))
}

// retryPause is the pause after the nth failed attempt (from 1), give or take
// a fifth: not all hosts at once.
func (c *Converger) retryPause(n int) time.Duration {
	d := concurrency.Delay(c.timing.firstRetry, c.timing.maxRetry, n)
	return time.Duration(float64(d) * (0.8 + 0.4*c.jitter()))
}

// listen follows what drives the converger. A source that ends is asked again.
func (c *Converger) listen(ctx context.Context, g *errgroup.Group) {
	c.input(func(in *inputs) {
		in.holdKnown = c.o.Holds == nil
		in.checksKnown = c.o.Checks == nil
	})
	g.Go(func() error {
		return c.follow(ctx, "desired version", func(ctx context.Context) error { return c.o.Desired(ctx, c.setDesired) })
	})
	if c.o.Holds != nil {
		g.Go(func() error {
			return c.follow(ctx, "holds", func(ctx context.Context) error { return c.o.Holds.Watch(ctx, c.setHold) })
		})
	}
	if c.o.Checks != nil {
		g.Go(func() error {
			return c.follow(ctx, "health checks", func(ctx context.Context) error { return c.o.Checks.Watch(ctx, c.setChecks) })
		})
	}
}

// follow watches until ctx ends, whatever becomes of a watch.
func (c *Converger) follow(ctx context.Context, what string, watch func(context.Context) error) error {
	for {
		err := watch(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Warn("a watch ended, starting it again", "of", what, "error", err)
		if err := concurrency.Sleep(ctx, c.timing.trouble); err != nil {
			return err
		}
	}
}

// input changes an input and makes the loop decide again.
func (c *Converger) input(change func(in *inputs)) {
	c.mu.Lock()
	change(&c.in)
	c.mu.Unlock()
	c.wakeUp()
}

// setDesired keeps the last version that could be read.
func (c *Converger) setDesired(version string, err error) {
	c.input(func(in *inputs) {
		if err != nil {
			in.desiredErr = err.Error()
			return
		}
		in.desired, in.desiredKnown, in.desiredErr = version, true, ""
	})
}

func (c *Converger) setHold(h Hold) {
	c.input(func(in *inputs) { in.hold, in.holdKnown = h, true })
}

func (c *Converger) setChecks(h Health) {
	failing := slices.Clone(h.Failing)
	now := c.now()
	c.input(func(in *inputs) {
		ended := in.drained && !h.Drained
		in.drained = h.Drained
		switch {
		case ended: // what failed meanwhile has time to pass
			in.failingSince, in.checksAllGood, in.freshUntil = now, len(failing) == 0, now.Add(c.timing.settle)
		case len(failing) == 0:
			in.checksAllGood = true
		case len(in.failing) == 0:
			in.failingSince = now
			in.checksAllGood = in.checksAllGood || in.checksKnown && now.After(in.freshUntil)
		}
		in.failing, in.checksKnown = failing, true
	})
}

// freshChecks forgets how checks were before the static workflow ran. That they
// pass, as far as is known, may be of before: a check that failed while the
// workflow restarted a service is reported when that serves again.
func (c *Converger) freshChecks() {
	now := c.now()
	c.input(func(in *inputs) {
		in.failingSince, in.checksAllGood, in.freshUntil = now, false, now.Add(c.timing.settle)
	})
}
