package converge

import (
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/rollout"
)

// grantRecord is what this host knows of its grant, in the file grant.json. It
// is written before anything follows from it.
type grantRecord struct {
	Format   int       `json:"format"`
	ID       string    `json:"id,omitempty"` // of the open grant; empty: no grant is open
	Version  string    `json:"version,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Failed   string    `json:"failed,omitempty"`   // why the grant counts as failed
	Stranded bool      `json:"stranded,omitempty"` // another version is desired
	Until    time.Time `json:"until,omitzero"`     // end of the window in which the host may begin
	// Begun: the host went into maintenance for it. Recorded: the version runs; only
	// health is missing.
	Begun    bool `json:"begun,omitempty"`
	Recorded bool `json:"recorded,omitempty"`
	// Intent is the grant that is being accepted.
	Intent *grantIntent `json:"intent,omitempty"`
}

type grantIntent struct {
	ID      string    `json:"id"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"`
}

const grantFormat = 1

// answer is what the record says to others; old is what the report says.
func (r grantRecord) answer(old cluster.Answer) cluster.Answer {
	a := cluster.Answer{Change: cluster.VersionChange, ID: r.ID, Tag: r.Version, State: cluster.GrantAccepted, Since: r.Since, Declined: old.Declined, Reason: old.Reason, Ready: old.Ready}
	switch {
	case r.Stranded:
		a.State = cluster.GrantStranded
	case r.Failed != "":
		a.State, a.Reason = cluster.GrantFailed, r.Failed
	}
	return a
}

// accepted is the record once the intent was carried out.
func (r grantRecord) accepted() grantRecord {
	return grantRecord{ID: r.Intent.ID, Version: r.Intent.Version, Since: r.Intent.Since, Until: r.Intent.Until}
}

// late reports whether the window closed before the host began.
func (r grantRecord) late(now time.Time) bool {
	return !r.Begun && !r.Until.IsZero() && !now.Before(r.Until)
}

// grantAction is one thing that a host does about its grant.
type grantAction string

const (
	grantNothing  grantAction = ""
	grantAdopt    grantAction = "adopt"    // the intent was carried out
	grantForget   grantAction = "forget"   // the intent was not, and no longer can be
	grantClose    grantAction = "close"    // the grant is done
	grantReassert grantAction = "reassert" // the report does not say what the record does
	grantLost     grantAction = "lost"     // the record does not say what the report does
	grantStrand   grantAction = "strand"   // another version is desired
	grantDecline  grantAction = "decline"
	grantReady    grantAction = "ready" // to be offered a grant again
	grantAccept   grantAction = "accept"
	grantEnter    grantAction = "enter" // go into maintenance, and begin
	grantFree     grantAction = "free"  // begin without a grant
	grantLift     grantAction = "lift"  // come back into service
	grantFinish   grantAction = "finish"
	grantSeparate grantAction = "separate" // the report is written before the grant ends
	grantLeft     grantAction = "left"     // no grant is open
)

// grantFacts is what a decision about the grant depends on.
type grantFacts struct {
	record grantRecord
	permit rollout.Permit

	enter   string // version that the host wants to begin with
	report  string // version that it runs, and is to report
	leave   string // version that it runs, and reported
	blocked string // why it cannot begin; empty: it can, or has no need to
	waits   bool   // it can only wait for an offer; permit may be out of date

	lifted  bool // it came back into service
	healthy bool // all its checks pass
	since   time.Time
}

// decideGrant returns what to do next, why the host waits, and when to decide
// again if nothing happens. It is a pure function.
func decideGrant(f grantFacts, now time.Time) (do grantAction, why string, again time.Time) {
	r, a := f.record, f.permit.Report.Answered(cluster.VersionChange)
	switch {
	case r.Intent != nil && a.ID == r.Intent.ID:
		return grantAdopt, "", again
	case r.Intent != nil && f.permit.Grant.ID != r.Intent.ID:
		return grantForget, "", again
	case r.ID != "" && a.ID == r.ID && a.State == cluster.GrantDone:
		return grantClose, "", again
	case r.ID != "" && (a.ID != r.ID || !a.Open()):
		return grantReassert, "", again
	case r.ID == "" && a.Open():
		return grantLost, "", again
	case f.leave != "":
		return decideLeave(f, now)
	case f.report != "":
		return decideReport(f), "", again
	case f.waits:
		return grantNothing, waitsForGrant, again
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
func decideEnter(f grantFacts, now time.Time) (do grantAction, why string, again time.Time) {
	r := f.record
	version := f.enter
	free, reason := f.permit.Free(version, now)
	if frozen, is := f.permit.Frozen(now); is {
		again = frozen.Until
	}
	givenUp := r.ID != "" && f.permit.GivenUp(r.ID)
	switch {
	case free:
		return grantFree, "", again
	case r.ID != "" && r.Version == version && !r.Stranded && r.late(now):
		return grantFinish, "", again
	case r.ID != "" && r.Version == version && !r.Stranded && f.permit.Desired == version:
		return grantEnter, "", again
	case r.ID != "" && r.Recorded && f.lifted && f.healthy:
		return grantFinish, "", again // it is in service, whatever comes next
	case r.ID != "" && r.Recorded && !f.lifted:
		return grantLift, "", again
	case r.ID != "" && !r.Stranded && !givenUp && f.permit.Desired == version && r.Version != version:
		return grantStrand, "", again
	case reason != "":
		return grantNothing, reason, again
	}
	ok, decline := f.permit.Offer(version, now)
	switch a := f.permit.Report.Answered(cluster.VersionChange); {
	case ok:
		return grantAccept, "", again
	case decline != "":
		return grantDecline, decline, again
	case a.Declined != "" && a.Declined == f.permit.Grant.ID && !a.Ready && f.permit.Grant.Until.IsZero():
		return grantReady, "", again
	}
	return grantNothing, waitsForGrant, again
}

// decideLeave is about a host that runs its version: it comes back into service,
// and ends its grant once it has been healthy for as long as the policy asks.
func decideLeave(f grantFacts, now time.Time) (do grantAction, why string, again time.Time) {
	long := f.minHealthy(f.leave)
	switch {
	case !f.lifted:
		return grantLift, "", again
	case f.record.ID == "":
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
func decideReport(f grantFacts) grantAction {
	r := f.record
	switch {
	case r.ID == "" || r.Version != f.report || r.Stranded || f.enter != "" || !f.healthy || f.minHealthy(f.report) > 0:
		return grantSeparate
	case !f.lifted:
		return grantLift
	}
	return grantFinish
}

// minHealthy is for how long the checks of a host that runs version must have passed
// before its grant ends.
func (f grantFacts) minHealthy(version string) time.Duration {
	if d := f.permit.Document; f.permit.Current() && d.Version == version {
		return time.Duration(d.Policy.MinHealthy)
	}
	return 0
}

// readGrant reads the record; one that is damaged is durable.ErrDamaged: what others know
// of the grant is in the report.
func readGrant(path string) (r grantRecord, err error) {
	found, err := readState(path, &r, func() error {
		if r.Format != grantFormat {
			return fmt.Errorf("format %d, expected %d", r.Format, grantFormat)
		}
		return nil
	})
	if !found {
		r = grantRecord{Format: grantFormat}
	}
	if err != nil {
		err = fmt.Errorf("record of the grant: %w", err)
	}
	return r, err
}

func writeGrant(path string, r grantRecord) error {
	r.Format = grantFormat
	if err := durable.WriteJSON(path, r, 0o750); err != nil {
		return fmt.Errorf("record of the grant cannot be written: %w", err)
	}
	return nil
}
