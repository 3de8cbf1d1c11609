package cluster

import (
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Wish is what a host asks for by itself: to be out of service for a while. See package lease.
type Wish struct {
	ID     string    `json:"id"` // of this lease; another one has another ID
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// Until is when the time of the lease is over; zero: it has no place yet.
	Until time.Time `json:"until,omitzero"`
	// Order is the ID of the operator's order for which the host asks; empty: it asks by itself. Ready: the host
	// is out of service and drained; set for orders only.
	Order string `json:"order,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	// Returns: the lease has waited for a long time for the host to be healthy, and for nothing else. It keeps no other change from it.
	Returns bool `json:"returns,omitempty"`
	// Trouble: its time is over, and the host is not healthy.
	Trouble string `json:"trouble,omitempty"`
}

// maxWish bounds the texts of a Wish, in bytes.
const maxWish = 200

// bounded is w as one may show it, whatever the host wrote.
func (w Wish) bounded() Wish {
	w.ID, w.Reason, w.Order, w.Trouble = printableLine(w.ID, maxBoundedName), printableLine(w.Reason, maxWish), printableLine(w.Order, maxBoundedName), printableLine(w.Trouble, maxWish)
	return w
}

// Wishing returns the report of a host that asks for w; nil: for nothing.
func (r Report) Wishing(w *Wish) Report {
	r.Lease = nil
	if w != nil {
		bounded := w.bounded()
		r.Lease = &bounded
	}
	return r
}

// Wish returns Lease within its bounds, whatever the host wrote; ok is false for a host that
// asks for nothing.
func (r Report) Wish() (w Wish, ok bool) {
	if r.Lease == nil || r.Lease.ID == "" {
		return Wish{}, false
	}
	return r.Lease.bounded(), true
}

// States of an Answer.
const (
	GrantAccepted = "accepted" // the host is at work, or waits until it is healthy
	GrantFailed   = "failed"   // the host lost its record of the grant, and tries again by itself
	GrantStranded = "stranded" // another version is desired, and needs another grant
	GrantDone     = "done"     // healthy, and back in service
)

// Answer is what a host says of what it was granted in one change.
type Answer struct {
	Change string    `json:"change"`
	ID     string    `json:"id,omitempty"`    // of the grant that it accepted last; empty: none
	Tag    string    `json:"tag,omitempty"`   // of what that grant is
	State  string    `json:"state,omitempty"` // of that grant
	Since  time.Time `json:"since,omitzero"`  // of its acceptance
	Ended  time.Time `json:"ended,omitzero"`  // when it was done

	Declined string `json:"declined,omitempty"` // id of the grant that it declined last
	Ready    bool   `json:"ready,omitempty"`    // what made it decline is over
	Reason   string `json:"reason,omitempty"`   // why it declined, or why the grant failed
}

// Open reports whether the host is out of service for the grant, or about to be.
func (a Answer) Open() bool {
	return a.ID != "" && (a.State == GrantAccepted || a.State == GrantFailed || a.State == GrantStranded)
}

// Kinds of changes.
const (
	KindVersion = "version" // a rollout
	KindFiles   = "files"   // new content of a stage
	KindRun     = "run"
	KindLease   = "lease" // a host asks for itself
)

// ChangeKinds returns the kinds of changes, in the order in which they are listed.
func ChangeKinds() []string { return []string{KindVersion, KindFiles, KindRun, KindLease} }

// ChangeID is the id of a change for people: KIND.NAME. The name is a version, a stage, the id of a run, or a host.
func ChangeID(kind, name string) string { return kind + "." + name }

// VersionChange is the id of the change that brings hosts the desired version: a cluster has one, whatever the version.
const VersionChange = "version"

// FilesChange is the id of the change that brings hosts new content of a stage: it lives as long as the stage.
func FilesChange(stage string) string { return ChangeID(KindFiles, stage) }

// StageOf is the stage of the change with an id; ok is false if that is another change.
func StageOf(change string) (stage string, ok bool) {
	return strings.CutPrefix(change, FilesChange(""))
}

// RunChange is the id of the change that brings hosts the jobs of a run.
func RunChange(run string) string { return ChangeID(KindRun, run) }

// RunOf is the run of the change with an id; ok is false if that is another change.
func RunOf(change string) (run string, ok bool) { return strings.CutPrefix(change, RunChange("")) }

// LeaseChange is the id of the lease of a host among changes: it has at most one.
func LeaseChange(node string) string { return ChangeID(KindLease, node) }

// Kept says why the host itself begins nothing that disturbs it: its hold file, or a lease. Empty: nothing keeps it.
func (h *Host) Kept() string {
	if file := h.Report.HeldByFile(); file != "" {
		return file
	}
	if w, _ := h.Report.Wish(); w.Returns {
		return ""
	}
	return h.Leased()
}

// Leased says that the host has a lease, and why; empty: it has none.
func (h *Host) Leased() string {
	if !h.Report.Answered(LeaseChange(h.Node)).Open() {
		return ""
	}
	w, _ := h.Report.Wish()
	return LeaseText(w)
}

// LeaseText says in words that a host has the lease that it asked for with w.
func LeaseText(w Wish) string {
	if w.Reason == "" {
		return "it has a lease"
	}
	return "it has a lease: " + w.Reason
}

// Answered returns the answer of the host in a change. Without one only Change is set.
func (r Report) Answered(change string) Answer {
	for _, a := range r.Grants[:min(len(r.Grants), pace.MostGrants)] {
		if a.Change == change {
			a.Reason = printableLine(a.Reason, MaxDetail)
			return a
		}
	}
	return Answer{Change: change}
}

// AtWork reports whether the host says that it is out of service for jorc: for a grant of any change, or as it converges without
// one.
func (r Report) AtWork() bool {
	return slices.ContainsFunc(r.Grants, Answer.Open) || r.States[CategoryConfig].State == StateRunning
}

// WithAnswer returns the report of the same host with another answer in a.Change, in the place of the one before; one that
// says nothing else is left out.
func (r Report) WithAnswer(a Answer) Report {
	a.Reason = text.Tail(a.Reason, MaxDetail)
	says := a != (Answer{Change: a.Change})
	i := slices.IndexFunc(r.Grants, func(o Answer) bool { return o.Change == a.Change })
	switch {
	case i < 0 && says:
		r.Grants = append(slices.Clone(r.Grants), a)
	case i >= 0 && says:
		r.Grants = slices.Clone(r.Grants)
		r.Grants[i] = a
	case i >= 0:
		r.Grants = slices.Delete(slices.Clone(r.Grants), i, i+1)
	}
	if len(r.Grants) == 0 {
		r.Grants = nil
	}
	return r
}
