package converge

import (
	"time"
)

// inputs is what others told the converger.
type inputs struct {
	desired      string
	desiredKnown bool
	desiredErr   string

	hold      Hold
	holdKnown bool

	missing      []Missing
	missingKnown bool
	cycle        []string // of static requirements, while some are missing

	failing       []string // checks
	failingSince  time.Time
	checksKnown   bool
	checksAllGood bool      // since the last static run they were, once
	freshUntil    time.Time // until then what they say may be of before the last static run

	admitted string // version for which Enter returned nil
	waiting  string // why it did not yet
	left     string // version for which Leave returned nil
	ready    string // job that is worth going on with
	retry    bool   // an operator asks for another attempt now

	said      uint64 // number of the report that the ledger has
	reportErr string
	errandErr string
}

// memory is what the loop knows beside its progress; a restart forgets it.
type memory struct {
	started    time.Time
	retryAt    time.Time // no failed attempt is made again before; zero: at once
	validateAt time.Time

	rest    rest   // what the open job waits for
	restWhy string // in words

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

// rest is what an open job waits for.
type rest int

const (
	restNone   rest = iota
	restReady       // a task's requirements, or a pause that it asked for
	restReboot      // the host's
)

// facts are all that a decision depends on.
type facts struct {
	inputs
	mem     memory
	p       progress
	unsaved bool
	local   string // version that the version file tells; empty: none
	told    bool   // the ledger has the report
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

// held is why nothing may go on. Before holds are known, what they were.
func (f *facts) held() string {
	if f.holdKnown {
		return f.hold.Held
	}
	return f.p.Hold.Held
}

// replaced tells whether another version is wanted than v. That none is wanted
// stops nothing.
func (f *facts) replaced(v string) bool {
	return f.desiredKnown && f.desired != "" && f.desired != v
}

// needed tells whether the static workflow has something to bring: another
// version, or the rest of what an attempt at another one left half done.
func (f *facts) needed() bool {
	a := f.p.Attempt
	return f.desiredKnown && f.desired != "" && (f.local != f.desired || a.Stage == stageDropped || a.unfinished() && a.Version != f.desired)
}

// checksFail tells whether failing checks mean that the host does not work,
// and otherwise when they will if they go on failing.
func (f *facts) checksFail(now time.Time) (fail bool, at time.Time) {
	if !f.checks || !f.checksKnown || len(f.failing) == 0 {
		return false, time.Time{}
	}
	at = f.failingSince.Add(f.settle)
	return f.checksAllGood || !now.Before(at), at
}

// checksPass tells whether the checks say that the host works.
func (f *facts) checksPass() bool { return !f.checks || f.checksKnown && len(f.failing) == 0 }
