package converge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/text"
	"github.com/jorc/jorc/internal/workflow"
)

// progressFormat is the number of the file's format.
const progressFormat = 1

// progress is what survives this process. Times in it bound pauses; nothing
// else depends on them.
type progress struct {
	ID      string  `json:"id"`   // of this file; part of the IDs of jobs
	Jobs    uint64  `json:"jobs"` // counts them
	Attempt attempt `json:"attempt"`
	Entered string  `json:"entered,omitempty"` // version for which admission was given and not given back
	Hold    Hold    `json:"hold,omitzero"`     // as last seen, for a start without Consul
	Retried Retry   `json:"retried,omitzero"`  // what an operator asked for last

	Report  report `json:"report"`            // what the stored report is to say
	Good    report `json:"good"`              // as of the last time when all was well
	Waiting string `json:"waiting,omitempty"` // what the reported state "pending" is about
}

// attempt is one run of the static workflow, with what follows from it.
type attempt struct {
	Version    string    `json:"version,omitempty"`
	Stage      stage     `json:"stage,omitempty"`
	Job        string    `json:"job,omitempty"`        // of the static workflow; empty: another program brought the version
	Validation string    `json:"validation,omitempty"` // open job
	Passed     bool      `json:"passed,omitempty"`     // the validation workflow did; the checks have to
	Fails      int       `json:"fails,omitempty"`      // attempts in a row at this version that came to nothing
	Why        string    `json:"why,omitempty"`        // the last of them did; one line
	Checks     bool      `json:"checks,omitempty"`     // it is invalid because of checks
	Invalid    bool      `json:"invalid,omitempty"`    // it is known that it does not work
	Suspect    string    `json:"suspect,omitempty"`    // tasks that needed more than one go
	Doubt      string    `json:"doubt,omitempty"`      // why its success is doubtful, as of when it was recorded
	Validated  time.Time `json:"validated,omitzero"`
	Arrived    time.Time `json:"arrived,omitzero"` // when it was recorded

	// Done are the tasks that an interrupted job of the attempt finished: the job that
	// continues it skips them.
	Done []string `json:"done,omitempty"`
	// Cut is the stage that was interrupted. The attempt waits for an operator until Again
	// is set, which is how it is to be tried again.
	Cut   stage `json:"cut,omitempty"`
	Again again `json:"again,omitempty"`
}

// again is how an interrupted attempt is tried again.
type again string

const (
	againContinue again = "continue" // with the interrupted task
	againWhole    again = "whole"    // from the first task of the static workflow
)

// stage is how far an attempt is.
type stage string

const (
	stageNone       stage = ""
	stageStatic     stage = "static"
	stageValidating stage = "validating"
	stageRecording  stage = "recording"
	stageDone       stage = "done"
	stageFailed     stage = "failed"  // the static workflow did
	stageInvalid    stage = "invalid" // it passed, and the host does not work
	stageDropped    stage = "dropped" // another version is wanted
	// stageInterrupted: a task that may not run again by itself was cut off.
	stageInterrupted stage = "interrupted"
)

// open reports whether a job of the attempt is open.
func (a attempt) open() bool { return a.Stage == stageStatic || a.Stage == stageValidating }

// broken reports whether the attempt came to nothing, or no longer works.
func (a attempt) broken() bool {
	return a.Stage == stageFailed || a.Stage == stageInvalid || a.Stage == stageInterrupted
}

// doubt is why a success of the attempt is doubtful.
func (a attempt) doubt() string { return cmp.Or(a.Doubt, a.Suspect) }

// unfinished reports whether static configuration may be half of this version
// and half of another.
func (a attempt) unfinished() bool { return a.Stage != stageNone && a.Stage != stageDone }

// Prefixes of the IDs of jobs.
const (
	staticJob     = "converge-"
	validationJob = "validate-"
)

// Origin is that of all jobs of this package: no other package continues them.
const Origin = "jorc converge"

// nextJob names another job. It differs from those of a file that was lost.
func (p *progress) nextJob(prefix, version string) string {
	p.Jobs++
	return fmt.Sprintf("%s%s-%d-%s", prefix, text.Head(version, 80), p.Jobs, p.ID)
}

func newProgress() progress {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return progress{ID: hex.EncodeToString(b)}
}

// Valid returns an error for an ID that cannot be part of those of jobs.
func (p progress) Valid() error {
	if p.ID == "" || strings.ContainsAny(p.ID, "/ ") {
		return fmt.Errorf("its ID is %q", p.ID)
	}
	return nil
}

// progressIn is the progress in a state directory.
func progressIn(stateDir string) durable.Doc[progress] {
	return durable.NewDoc[progress](filepath.Join(stateDir, "converge.json"), progressFormat)
}

// readProgress reads the progress. One that is damaged, or of a newer jorc, is put
// aside: what the host runs is in the version file.
func readProgress(doc durable.Doc[progress]) (p progress, fresh bool, err error) {
	p, found, err := doc.Load()
	switch {
	case found:
		return p, false, nil
	case errors.Is(err, durable.ErrDamaged):
		err = fmt.Errorf("progress: %w; the version file decides which version this host runs", err)
	case err != nil:
		return progress{}, false, fmt.Errorf("progress: %w", err)
	}
	return newProgress(), true, err
}

// load reads what is on the disk; it tries until that can be read or ctx ends.
func (c *Converger) load(ctx context.Context) error {
	backoff := concurrency.NewBackoff(c.timing.trouble, c.timing.maxTrouble)
	for {
		p, fresh, err := readProgress(progressIn(c.o.StateDir))
		err = errors.Join(err, c.removeTemp())
		if err != nil {
			c.log.Error("progress of convergence", "error", err)
		}
		if p.ID != "" {
			c.p = p
			c.resumeClocks()
			c.report, c.gen = p.Report, 1
			if fresh {
				c.abandonStrays(ctx)
			}
			c.drift.load(p.Attempt)
			return nil
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// removeTemp removes what a killed process had not finished writing.
func (c *Converger) removeTemp() error {
	var errs []error
	for _, path := range []string{progressIn(c.o.StateDir).Path(), c.drift.doc.Path(), c.o.VersionFile} {
		errs = append(errs, durable.RemoveTempOf(path))
	}
	return errors.Join(errs...)
}

// resumeClocks sets what is due: a failed attempt is retried at once, a
// validation when its interval since the last one is over.
func (c *Converger) resumeClocks() {
	now := c.now()
	c.mem.started = now
	c.mem.validateAt = now
	if passed := now.Sub(c.p.Attempt.Validated); !c.once && passed >= 0 && passed < c.o.Static.ValidationInterval {
		c.mem.validateAt = now.Add(c.o.Static.ValidationInterval - passed)
	}
}

// abandonStrays ends jobs that no longer belong to an attempt.
func (c *Converger) abandonStrays(ctx context.Context) {
	jobs, err := c.o.Runner.Open()
	if err != nil {
		c.log.Warn("open jobs cannot be read", "error", err)
	}
	for i := range jobs {
		if jobs[i].Origin != Origin {
			continue
		}
		if _, err := c.o.Runner.Abandon(ctx, jobs[i].ID, "the progress of convergence was lost"); err != nil {
			c.log.Warn("cannot abandon a job of an unknown attempt", "job", jobs[i].ID, "error", err)
		}
	}
}

// save writes progress down.
func (c *Converger) save() error {
	if err := progressIn(c.o.StateDir).Save(c.p); err != nil {
		return fmt.Errorf("progress of convergence cannot be written: %w", err)
	}
	c.unsaved = false
	return nil
}

var _ Runner = (*workflow.Runner)(nil)

// record makes the version the one that this host runs: what static files are
// like, the version file, progress, and then, in one write, the report.
func (c *Converger) record(ctx context.Context) error {
	a := c.p.Attempt
	now := c.now()
	if err := c.drift.snapshot(ctx, a.Job, a.Version); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Warn("cannot record the state of static files; drift will not be detected", "error", err)
	}
	c.hook("snapshot")
	if err := WriteVersionFile(c.o.VersionFile, a.Version); err != nil {
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

// adopted is r for a version that another program brought: what was reported
// before is corrected, unless that program did so.
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

// awaitsAdmission is what a host waits for once nothing that it requires is missing.
const awaitsAdmission = "waiting to be let in"

// reportPending reports that requirements are missing: when that begins, when
// others are missing, and seldom when only their numbers changed.
func (c *Converger) reportPending(f *facts, d *decision) {
	s := cluster.CategoryState{State: cluster.StatePending, Version: f.desired, Detail: d.detail}
	switch {
	case d.waiting == awaitsAdmission:
		s.Detail = awaitsAdmission // whatever the reasons, which change
	case d.phase == PhaseFailed:
		s.State = cluster.StateFailed
	}
	d.wake(c.reportSeldom(s, d.waiting))
}

// reportStuck reports that the attempt cannot continue now. That it continues later
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
