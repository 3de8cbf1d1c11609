package converge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// record makes the version the one that this host runs: what static files are
// like, the version file, progress, and then, in one move, the ledger.
func (c *Converger) record(ctx context.Context) error {
	a := c.p.Attempt
	now := c.now()
	if err := c.drift.snapshot(ctx, a.Job, a.Version); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Warn("it will not be known whether static files drift", "error", err)
	}
	c.hook("snapshot")
	if err := cluster.WriteVersionFile(c.o.VersionFile, a.Version); err != nil {
		return c.stuckWith(fmt.Errorf("version %s runs and works, but cannot be recorded: %w", a.Version, err))
	}
	c.hook("version file")
	a.Doubt = a.suspicion()
	a.Invalid, a.Checks = false, false
	a.Stage, a.Arrived = stageDone, now.UTC().Truncate(time.Second)
	r := c.p.Report
	r.Version = a.Version
	if a.Job != "" {
		r.Config, r.Instead = &cluster.CategoryState{State: cluster.StateSuccess, Version: a.Version, Suspect: a.Doubt}, nil
	} else {
		r = c.adopted(r, a.Version)
	}
	r.Validation = &cluster.CategoryState{State: cluster.StateSuccess, Version: a.Version}
	if a.Job == "" {
		r.Validation.Suspect = a.Doubt
	}
	old := c.p
	c.p.Attempt, c.p.Report, c.p.Good, c.p.Waiting, c.p.Hold = a, r, r, "", Hold{}
	if err := c.save(); err != nil {
		c.p = old
		return c.stuckWith(err)
	}
	c.hook("recorded")
	c.mem.retryAt = time.Time{}
	c.log.Info("converged", "version", a.Version, "suspect", a.Doubt)
	return nil
}

// adopted is r for a version that somebody else brought: what was reported
// before is made good, unless whoever brought the version did that.
func (c *Converger) adopted(r report, version string) report {
	r.Instead = r.Config
	switch good := c.p.Good.Config; {
	case r.Config == nil:
	case r.Config.State != cluster.StateSuccess: // what was waited for is there
		r.Config = brought(version)
	case good != nil && good.Version == r.Config.Version: // what drifted did so from that one
		r.Config = good
	}
	return r
}

// letIn is what a host waits for once nothing that it requires is missing.
const letIn = "waiting to be let in"

// reportPending reports that requirements are missing: when that begins, when
// others are missing, and seldom when only their numbers changed.
func (c *Converger) reportPending(f *facts, d *decision) {
	s := cluster.CategoryState{State: cluster.StatePending, Version: f.desired, Detail: d.detail}
	switch {
	case d.waiting == letIn:
		s.Detail = letIn // whatever the reasons, which change
	case d.phase == PhaseFailed:
		s.State = cluster.StateFailed
	}
	d.wake(c.reportSeldom(s, d.waiting))
}

// reportStuck reports that the attempt does not go on now. That it does again
// is not worth a write: the next one is its end.
func (c *Converger) reportStuck(s cluster.CategoryState, about string) {
	if s.Version == "" {
		s.Version = c.p.Attempt.Version
	}
	c.reportSeldom(s, about)
}

// reportSeldom reports s, which is about something: at once when it is about
// something else than what is reported, otherwise not before the time that it
// returns.
func (c *Converger) reportSeldom(s cluster.CategoryState, about string) (at time.Time) {
	old := c.p.Report.Config
	now := c.now()
	if old != nil && old.State == s.State && old.Version == s.Version && c.p.Waiting == about {
		if old.Detail == s.Detail {
			return time.Time{}
		}
		if now.Before(c.mem.recountAt) {
			return c.mem.recountAt
		}
	}
	c.p.Waiting = about
	c.mem.recountAt = now.Add(c.timing.recount)
	c.setConfig(s)
	return time.Time{}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
