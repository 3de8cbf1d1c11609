package converge

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
)

// report is this host's part of its stored report. A field that is nil or empty leaves
// what is stored.
type report struct {
	Version    string                 `json:"version,omitempty"`
	Config     *cluster.CategoryState `json:"config,omitempty"`
	Validation *cluster.CategoryState `json:"validation,omitempty"`
	// Instead is the one state of config that Config may take the place of; nil:
	// whatever is there. The program that brought a version may have reported the result.
	Instead *cluster.CategoryState `json:"instead,omitempty"`
}

// apply is the document that says r.
func (r report) apply(d cluster.Report, now time.Time) cluster.Report {
	if r.Version != "" {
		d = d.At(r.Version, now)
	}
	if r.Config != nil && r.replaces(d.States[cluster.CategoryConfig]) {
		d = d.With(cluster.CategoryConfig, *r.Config, now)
	}
	if r.Validation != nil {
		d = d.With(cluster.CategoryValidation, *r.Validation, now)
	}
	return d
}

// replaces reports whether r.Config may take the place of s.
func (r report) replaces(s cluster.CategoryState) bool {
	return r.Instead == nil || s.State == r.Instead.State && s.Version == r.Instead.Version
}

func same(a, b *cluster.CategoryState) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.State == b.State && a.Version == b.Version && a.Detail == b.Detail && a.LogURL == b.LogURL && a.Suspect == b.Suspect && a.NextTry.Equal(b.NextTry)
}

func (r report) equal(o report) bool {
	return r.Version == o.Version && same(r.Config, o.Config) && same(r.Validation, o.Validation) && same(r.Instead, o.Instead)
}

// setReport makes r what the stored report is to say.
func (c *Converger) setReport(r report) {
	if !r.equal(c.p.Report) {
		c.p.Report, c.unsaved = r, true
	}
}

func (c *Converger) setConfig(s cluster.CategoryState) {
	r := c.p.Report
	r.Config, r.Instead = &s, nil
	c.setReport(r)
}

// passReport passes the report to the goroutine that writes it, also while the disk is
// full: other hosts should know.
func (c *Converger) passReport() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.report.equal(c.p.Report) {
		c.report = c.p.Report
		c.gen++
		c.changed.Notify()
	}
}

// reportAll makes the stored report follow until ctx ends: what was not
// written yet when the report changes again is left out.
func (c *Converger) reportAll(ctx context.Context) error {
	for {
		if err := c.reportOne(ctx); err != nil {
			return err
		}
		if err := c.recheckUntilChanged(ctx); err != nil {
			return err
		}
	}
}

// recheckUntilChanged returns when the report changes, or with ctx's error. Meanwhile it
// reads the stored report at long intervals: one that another program damaged is replaced.
func (c *Converger) recheckUntilChanged(ctx context.Context) error {
	for {
		due := time.NewTimer(time.Duration(float64(c.timing.recheck) * (0.8 + 0.4*c.jitter())))
		select {
		case <-ctx.Done():
			due.Stop()
			return ctx.Err()
		case <-c.changed.C():
			due.Stop()
			return nil
		case <-due.C:
		}
		c.mu.Lock()
		never := c.report.equal(report{})
		c.mu.Unlock()
		if never {
			continue
		}
		_, err := c.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) { return d, nil })
		if err != nil && ctx.Err() == nil {
			c.log.Debug("cannot check this host's report", "error", err)
		}
	}
}

// reportOne has the newest report written. Its error is ctx's.
func (c *Converger) reportOne(ctx context.Context) error {
	backoff := concurrency.NewBackoff(c.timing.trouble, c.timing.maxTrouble/2)
	for first := true; ; first = false {
		c.mu.Lock()
		r, gen, stored := c.report, c.gen, c.in.storedGen
		c.mu.Unlock()
		if stored >= gen {
			return nil // an earlier round took it along
		}
		if r.equal(report{}) {
			c.noteStored(gen, nil)
			return nil
		}
		c.hook("report")
		err := c.writeReport(ctx, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.hook("reported")
		c.noteStored(gen, err)
		if err == nil {
			return nil
		}
		if first {
			c.log.Warn("cannot report this host's state, will retry", "error", err)
		}
		if err := c.pauseUntilChanged(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// writeReport makes the stored report say r, together with the end of the grant where the host
// may come back into service at once.
func (c *Converger) writeReport(ctx context.Context, r report) error {
	at := c.now().UTC().Truncate(time.Second)
	change := func(d cluster.Report) cluster.Report { return r.apply(d, at) }
	if c.o.Admission != nil && r.Version != "" {
		if done, err := c.o.Admission.Report(ctx, r.Version, change); done || err != nil {
			return err
		}
	}
	_, err := c.o.Report.Change(ctx, func(d cluster.Report) (cluster.Report, error) { return change(d), nil })
	return err
}

// reassert has the report written again: Consul may have lost it.
func (c *Converger) reassert() {
	c.o.Report.Forget()
	c.mu.Lock()
	c.gen++
	c.mu.Unlock()
	c.changed.Notify()
	c.wakeUp()
}

// setRetry takes over what an operator asked for last.
func (c *Converger) setRetry(r Retry) {
	c.input(func(in *inputs) { in.retry = r })
}

// pauseUntilChanged waits, shorter when the report changes.
func (c *Converger) pauseUntilChanged(ctx context.Context, d time.Duration) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-short.Done():
	case <-c.changed.C():
		_ = concurrency.Sleep(short, min(d, c.timing.trouble)) // Consul may still be away
	}
	return ctx.Err()
}

// noteStored notes that a report is stored, or why not.
func (c *Converger) noteStored(gen uint64, err error) {
	c.mu.Lock()
	if err == nil {
		c.in.storedGen, c.in.reportErr = max(c.in.storedGen, gen), ""
	} else {
		c.in.reportErr = err.Error()
	}
	c.mu.Unlock()
	c.reported.Notify()
	c.wakeUp()
}

// awaitReported waits until the report is stored, for a while: a host that
// cannot reach Consul is not kept from converging by that.
func (c *Converger) awaitReported(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timing.reportWait, errors.New("not reported in time"))
	defer cancel()
	for {
		c.mu.Lock()
		done := c.in.storedGen >= c.gen
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-c.reported.C():
		}
	}
}

// Status is how this host converges.
type Status struct {
	Phase     Phase     `json:"phase"`
	Detail    string    `json:"detail"`
	Since     time.Time `json:"since"`   // of the phase
	Desired   string    `json:"desired"` // empty: none, or not known
	Version   string    `json:"version"` // in the version file
	Attempt   string    `json:"attempt"` // version that is, or was last, applied
	Job       string    `json:"job"`     // of the static workflow
	Fails     int       `json:"fails"`   // attempts in a row that came to nothing
	Why       string    `json:"why"`     // the last of them did
	Next      time.Time `json:"next,omitzero"`
	Missing   []Missing `json:"missing"` // requirements
	Failing   []string  `json:"failing"` // health checks
	Drifted   []string  `json:"drifted"` // paths of static configuration
	DriftNote string    `json:"drift_note"`
	Hold      Hold      `json:"hold"`
	Suspect   string    `json:"suspect"`
	Trouble   []string  `json:"trouble"` // what cannot be done at present, one line each

	Config     *cluster.CategoryState `json:"config"`     // as reported; nil: nothing was
	Validation *cluster.CategoryState `json:"validation"` // as reported
	Reported   bool                   `json:"reported"`   // it is stored

	Outcome Outcome      `json:"outcome"` // empty: the pass continues
	History []Transition `json:"history"` // the last ones
}

// Transition is one change of phase.
type Transition struct {
	At      time.Time `json:"at"`
	Phase   Phase     `json:"phase"`
	Version string    `json:"version"` // desired
	Detail  string    `json:"detail"`
}

// maxHistory bounds Status.History.
const maxHistory = 50

// Status returns how this host converges now. It is safe for concurrent use.
func (c *Converger) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	if s.Phase == "" {
		s.Phase = PhaseStarting
	}
	s.Missing, s.Failing, s.Drifted, s.Trouble, s.History = whole(s.Missing), whole(s.Failing), whole(s.Drifted), whole(s.Trouble), whole(s.History)
	return s
}

// whole is a copy that is never nil: lists in JSON are lists.
func whole[T any](all []T) []T { return append([]T{}, all...) }

// publish makes the status what was found and decided, and hands it on when it
// is another one.
func (c *Converger) publish(f *facts, d decision) {
	now := c.now()
	a := c.p.Attempt
	s := Status{
		Phase: d.phase, Detail: d.detail, Since: now, Desired: f.desired, Version: f.local, Attempt: a.Version, Job: a.Job,
		Fails: a.Fails, Why: a.Why, Next: d.until.Round(0), Missing: f.missing, Failing: f.failing,
		Drifted: f.drifted, DriftNote: c.drift.note(), Hold: f.hold, Suspect: suspectWith(a.doubt(), c.drift.reason()),
		Config: c.p.Report.Config, Validation: c.p.Report.Validation, Reported: f.stored && !c.unsaved, Outcome: d.outcome,
	}
	if d.outcome != "" && d.do != doNothing {
		s.Outcome = ""
	}
	c.mu.Lock()
	for _, text := range []string{c.mem.saveIs, c.mem.troubleIs, c.note, f.desiredErr, f.reportErr, f.taskErr, f.job.trouble()} {
		if text != "" {
			s.Trouble = append(s.Trouble, text)
		}
	}
	old := c.status
	s.History = old.History
	if old.Phase == s.Phase && old.Desired == s.Desired {
		s.Since = old.Since
	} else {
		s.History = append(slices.Clone(s.History), Transition{At: now.UTC().Truncate(time.Millisecond), Phase: s.Phase, Version: s.Desired, Detail: s.Detail})
		if n := len(s.History) - maxHistory; n > 0 {
			s.History = s.History[n:]
		}
	}
	c.status = s
	c.mu.Unlock()
	if c.o.Changed != nil && !s.sameAs(old) {
		c.o.Changed(s)
	}
}

func (s Status) sameAs(o Status) bool {
	return s.Phase == o.Phase && s.Detail == o.Detail && s.Desired == o.Desired && s.Version == o.Version && s.Job == o.Job &&
		s.Fails == o.Fails && s.Reported == o.Reported && s.Outcome == o.Outcome && s.Suspect == o.Suspect && s.DriftNote == o.DriftNote &&
		s.Hold == o.Hold && same(s.Config, o.Config) && same(s.Validation, o.Validation) &&
		slices.Equal(s.Missing, o.Missing) && slices.Equal(s.Failing, o.Failing) && slices.Equal(s.Drifted, o.Drifted) && slices.Equal(s.Trouble, o.Trouble)
}
