package converge

import (
	"cmp"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// inputs are the latest values of what the converger follows.
type inputs struct {
	desired      string
	desiredKnown bool
	desiredErr   string

	hold      Hold
	holdKnown bool

	missing      []Missing
	missingKnown bool
	cycle        []string // of static requirements, while some are missing

	drained       bool     // this host is in maintenance that jorc did not begin
	failing       []string // checks
	failingSince  time.Time
	checksKnown   bool
	checksAllGood bool      // since the last static run they were, once
	freshUntil    time.Time // until then what they say may be of before the last static run

	admitted string // version for which Enter returned nil
	waiting  string // why it did not yet
	left     string // version for which Leave returned nil
	retry    Retry  // what an operator asked for last
	job      jobStatus

	storedGen uint64 // number of the report that is stored
	reportErr string
	taskErr   string
}

// memory is what the loop knows beside its progress; a restart forgets it.
type memory struct {
	started    time.Time
	retryAt    time.Time // the earliest time of the next attempt after a failure; zero: at once
	validateAt time.Time
	drained    bool // as of the last turn of the loop

	trouble   action // what could not be done
	troubles  int    // in a row
	troubleAt time.Time
	troubleIs string

	saveAt time.Time // progress is not written down again before
	saveIs string    // why it could not be
	saves  int       // that failed, in a row

	recountAt time.Time // a pending state of which only numbers changed is not reported before
	pendingAt time.Time // since when requirements are missing
}

// facts are all that a decision depends on.
type facts struct {
	inputs
	mem     memory
	p       progress
	unsaved bool
	local   string // version in the version file; empty: none
	stored  bool   // the report is stored
	drifted []string

	once       bool
	requires   bool // there are requirements
	admission  bool
	checks     bool
	cycles     bool
	static     bool // there is a static workflow
	settle     time.Duration
	patience   time.Duration
	cycleAfter time.Duration
}

// held is why the host must stop. Until holds are known, the last known ones count.
func (f *facts) held() string {
	if f.holdKnown {
		return f.hold.Held
	}
	return f.p.Hold.Held
}

// drainedText is why a drained host begins nothing.
const drainedText = "drained: " + cluster.DrainedText + "; 'consul maint -disable' ends it"

// still is why nothing new begins on this host; a drained one finishes what runs.
func (f *facts) still() string {
	if f.drained {
		return cmp.Or(f.held(), drainedText)
	}
	return f.held()
}

// asks returns until when the host waits to learn from its checks whether it is drained; zero:
// it knows, or does without.
func (f *facts) asks(now time.Time) (until time.Time) {
	if patient := f.mem.started.Add(f.patience); f.checks && !f.checksKnown && now.Before(patient) {
		return patient
	}
	return until
}

// asking is the decision to wait for what asks.
func asking(until time.Time) decision {
	return decision{until: until, phase: PhaseStarting, detail: "asking Consul whether this host is drained"}
}

// replaced reports whether another version than v is desired. Without a desired
// version the attempt continues.
func (f *facts) replaced(v string) bool {
	return f.desiredKnown && f.desired != "" && f.desired != v
}

// needed reports whether the static workflow has something to bring: another
// version, or the rest of what an attempt at another one left half done.
func (f *facts) needed() bool {
	a := f.p.Attempt
	return f.desiredKnown && f.desired != "" && (f.local != f.desired || a.Stage == stageDropped || a.unfinished() && a.Version != f.desired)
}

// checksFail reports whether failing checks mean that the host does not work,
// and otherwise when they will if they continue to fail.
func (f *facts) checksFail(now time.Time) (fail bool, at time.Time) {
	if !f.checks || !f.checksKnown || len(f.failing) == 0 {
		return false, time.Time{}
	}
	at = f.failingSince.Add(f.settle)
	return f.checksAllGood || !now.Before(at), at
}

// checksPass reports whether the checks say that the host works.
func (f *facts) checksPass() bool { return !f.checks || f.checksKnown && len(f.failing) == 0 }

// observe brings what changed around an attempt into what is remembered of it.
func (c *Converger) observe() {
	c.mu.Lock()
	in := c.in
	c.mu.Unlock()
	if in.retry.At.After(c.p.Retried.At) {
		c.retried(in.retry)
	}
	if c.mem.drained && !in.drained {
		c.mem.validateAt = time.Time{} // at once
	}
	c.mem.drained = in.drained
	a := c.p.Attempt
	if in.holdKnown && a.open() && c.p.Hold != in.hold {
		c.p.Hold, c.unsaved = in.hold, true
	}
	if in.admitted != "" && c.p.Entered != in.admitted {
		c.p.Entered, c.unsaved = in.admitted, true
	}
	if !in.missingKnown || len(in.missing) == 0 {
		c.mem.pendingAt = time.Time{}
	} else if c.mem.pendingAt.IsZero() {
		c.mem.pendingAt = c.now()
	}
	if in.job.wait != nil && a.open() {
		c.reportWait(in.job.wait)
	}
	if a.Stage != stageDone && a.Stage != stageInvalid {
		return
	}
	c.settleReport(in)
}

// retried makes another attempt due at once. An interrupted attempt remembers how it is to be
// tried again: it may have to wait, and the agent may restart meanwhile.
func (c *Converger) retried(r Retry) {
	c.mem.retryAt, c.mem.troubleAt, c.mem.saveAt = time.Time{}, time.Time{}, time.Time{}
	c.p.Retried, c.unsaved = r, true
	a := &c.p.Attempt
	a.Fails = 0 // attempts and pauses count from here on
	switch {
	case a.Stage != stageInterrupted:
	case r.FromStart && c.o.Static.Workflow != "":
		a.Again = againWhole
	case r.FromStart: // only validation
		a.Again, a.Done = againContinue, nil
	default:
		a.Again = againContinue
	}
}

// settleReport reports success again once no requirement is missing,
// and whether static files drifted.
func (c *Converger) settleReport(in inputs) {
	r := c.p.Report
	back := in.desiredKnown && in.desired == c.p.Attempt.Version && c.p.Attempt.Stage == stageDone
	if back && r.Config != nil && c.p.Waiting != "" {
		r.Config, r.Instead = c.p.Good.Config, nil
		if r.Config == nil {
			r.Config = brought(in.desired)
		}
		c.p.Waiting = ""
	}
	why := suspectWith(c.p.Attempt.doubt(), c.drift.reason())
	if c.p.Attempt.Job == "" { // the program that brought the version reports config
		r.Validation = suspected(r.Validation, why)
	} else {
		r.Config = suspected(r.Config, why)
	}
	c.setReport(r)
}

// brought is the state of configuration that another program applied without
// reporting it.
func brought(version string) *cluster.CategoryState {
	return &cluster.CategoryState{State: cluster.StateSuccess, Version: version, Suspect: "jorc did not apply it: the version file says that it is there"}
}

// suspected is s, which is doubtful for that reason if it is a success.
func suspected(s *cluster.CategoryState, why string) *cluster.CategoryState {
	if s == nil || s.State != cluster.StateSuccess || s.Suspect == why {
		return s
	}
	other := *s
	other.Suspect = why
	return &other
}

func suspectWith(a, b string) string {
	if a != "" && b != "" {
		return a + "; " + b
	}
	return a + b
}
