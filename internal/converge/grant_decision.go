package converge

import (
	"errors"
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/rollout"
)

// grantRecord is what this host knows of its grant of a version, in the file grant.json. It
// is written before anything follows from it.
type grantRecord struct {
	change.Held

	// Begun: the host went into maintenance for it. Recorded: the version runs; only
	// health is missing.
	Begun    bool `json:"begun,omitempty"`
	Recorded bool `json:"recorded,omitempty"`
}

const grantFormat = 2

// late reports whether the window closed before the host began.
func (r grantRecord) late(now time.Time) bool {
	return !r.Begun && !r.Until.IsZero() && !now.Before(r.Until)
}

// done is the record once the grant has ended.
func (r grantRecord) done(now time.Time) grantRecord {
	h := r.Held
	h.Ended, h.Failed, h.Stranded, h.Why = now.UTC().Truncate(time.Second), "", false, ""
	return grantRecord{Held: h}
}

// grantAction is one thing that a host does about its grant.
type grantAction string

const (
	grantNothing  grantAction = ""
	grantStrand   grantAction = "strand" // another version is desired
	grantDecline  grantAction = "decline"
	grantReady    grantAction = "ready" // to be offered a grant again
	grantAccept   grantAction = "accept"
	grantEnter    grantAction = "enter" // go into maintenance, and begin
	grantFree     grantAction = "free"  // begin without a grant, if what is stored says so, too
	grantLift     grantAction = "lift"  // come back into service
	grantFinish   grantAction = "finish"
	grantSeparate grantAction = "separate" // the report is written before the grant ends
	grantLeft     grantAction = "left"     // no grant is open
)

// grantFacts is what a decision about the grant depends on.
type grantFacts struct {
	record grantRecord
	permit rollout.Permit // as the watches delivered it, and the report as it was last read or written

	enter   string // version that the host wants to begin with
	report  string // version that it runs, and is to report
	leave   string // version that it runs, and reported
	blocked string // why it cannot begin; empty: it can, or has no need to

	lifted  bool // it came back into service
	healthy bool // all its checks pass
	since   time.Time
}

// decideGrant returns what to do next, why the host waits, and when to decide
// again if nothing happens. It is a pure function.
func decideGrant(f *grantFacts, now time.Time) (do grantAction, why string, again time.Time) {
	switch {
	case f.leave != "":
		return decideLeave(f, now)
	case f.report != "":
		return decideReport(f), "", again
	case f.enter != "":
		return decideEnter(f, now)
	case f.blocked != "":
		if ok, _ := f.permit.Offer(f.permit.Grant.Tag, now); ok {
			return grantDecline, f.blocked, again
		}
	}
	return grantNothing, "", again
}

const waitsForGrant = "waits for a grant of the orchestrator; 'jorc update why' says what that waits for"

// decideEnter is about a host that is ready to begin with a version.
func decideEnter(f *grantFacts, now time.Time) (do grantAction, why string, again time.Time) {
	r, version := &f.record, f.enter
	free, reason := f.permit.Free(version, now)
	if frozen, is := f.permit.Frozen(now); is {
		again = frozen.Until
	}
	open := r.Open()
	mine := open && r.Tag == version && !r.Stranded
	givenUp := open && f.permit.GivenUp(r.ID)
	switch {
	case free:
		return grantFree, "", again
	case mine && r.late(now):
		return grantFinish, "", again
	case mine && f.permit.Desired == version:
		return grantEnter, "", again
	case open && r.Recorded && f.lifted && f.healthy:
		return grantFinish, "", again // it is in service, whatever comes next
	case open && r.Recorded && !f.lifted:
		return grantLift, "", again
	case open && !r.Stranded && !givenUp && f.permit.Desired == version && r.Tag != version:
		return grantStrand, "", again
	case reason != "":
		return grantNothing, reason, again
	}
	ok, decline := f.permit.Offer(version, now)
	switch g := f.permit.Grant; {
	case ok:
		return grantAccept, "", again
	case decline != "":
		return grantDecline, decline, again
	case f.declined(g) && g.Until.IsZero():
		return grantReady, "", again
	}
	return grantNothing, waitsForGrant, again
}

// declined reports whether the host declined g and has not said since that it is ready. Where its disk was wiped only its
// report tells.
func (f *grantFacts) declined(g change.Grant) bool {
	if r := &f.record; r.Declined == g.ID {
		return g.ID != "" && !r.Ready
	}
	said := f.permit.Report.Answered(cluster.VersionChange)
	return said.Declined != "" && said.Declined == g.ID && !said.Ready
}

// decideLeave is about a host that runs its version: it comes back into service,
// and ends its grant once it has been healthy for as long as the policy asks.
func decideLeave(f *grantFacts, now time.Time) (do grantAction, why string, again time.Time) {
	long := f.minHealthy(f.leave)
	switch {
	case !f.lifted:
		return grantLift, "", again
	case !f.record.Open():
		return grantLeft, "", again
	case !f.healthy:
		return grantNothing, "its grant ends when all checks pass", again
	case now.Sub(f.since) < long:
		return grantNothing, fmt.Sprintf("its grant ends when all checks have passed for %v", long), f.since.Add(long)
	}
	return grantFinish, "", again
}

// decideReport is about a host that has a version to report: where the policy asks for no
// time in health, a healthy host ends its grant in the same transaction.
func decideReport(f *grantFacts) grantAction {
	r := &f.record
	switch {
	case !r.Open() || r.Tag != f.report || r.Stranded || f.enter != "" || !f.healthy || f.minHealthy(f.report) > 0:
		return grantSeparate
	case !f.lifted:
		return grantLift
	}
	return grantFinish
}

// minHealthy is for how long the checks of a host that runs version must have passed
// before its grant ends.
func (f *grantFacts) minHealthy(version string) time.Duration {
	if d := f.permit.Document; f.permit.Current() && d.Version == version {
		return time.Duration(d.Policy.MinHealthy)
	}
	return 0
}

// load reads the record; of one that is damaged the report tells what others know.
func loadGrant(d durable.Doc[grantRecord]) (r grantRecord, lost, err error) {
	r, _, err = d.Load()
	if errors.Is(err, durable.ErrDamaged) {
		return r, err, nil
	}
	return r, nil, err
}
