package rollout

import (
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Paused is what Document.State says while the rollout is paused.
const Paused = "paused"

// Spec is what a rollout is asked for, at cluster.KeyVersion. Operators write it, and the orchestrator where
// it adopts, pauses, ends or takes back a rollout. Hosts check it, and each change of it voids open
// offers; what changes more often is in Book.
type Spec struct {
	Version string `json:"version"`
	// Previous is the last version that all members ran without a failure;
	// empty: not known.
	Previous string      `json:"previous,omitempty"`
	Policy   pace.Policy `json:"policy"`
	By       string      `json:"by,omitempty"` // who triggered it
	Reason   string      `json:"reason,omitempty"`
	Started  time.Time   `json:"started"`
	Finished time.Time   `json:"finished,omitzero"` // done or aborted
	Aborted  bool        `json:"aborted,omitempty"`

	// Stopped says that the rollout is paused. Phase is then where it continues.
	Stopped *Stop `json:"stopped,omitempty"`
	// Resumed is when the last pause ended; what had failed until then is accepted.
	Resumed time.Time `json:"resumed,omitzero"`
	// Consented: it needs no consent to continue after the canary. Consent is the last one.
	Consented bool           `json:"consented,omitempty"`
	Consent   *pace.Approval `json:"consent,omitempty"`
	// RollbackOf: this rollout takes another one back.
	RollbackOf *Rollback `json:"rollback_of,omitempty"`
	// Supersedes is the unfinished rollout that this one took the place of.
	Supersedes *Supersedes `json:"supersedes,omitempty"`
	// Exceptions are the rules of the cluster that it does not follow.
	pace.Exceptions
	// Repolicied is the last change of the policy; nil: there was none.
	Repolicied *Repolicied `json:"repolicied,omitempty"`
}

// Book is how far a rollout is, at cluster.KeyVersionState. Only the orchestrator writes it, and no host
// reads it. One that is lost is begun again: the steps are walked from the first, past what is done.
type Book struct {
	Rollout string `json:"rollout"` // its ID; that of another one says nothing
	// Policy and Resumed are those of the Spec by which it was made.
	Policy  pace.Policy `json:"policy"`
	Resumed time.Time   `json:"resumed,omitzero"`
	pace.Progress
}

// Document is the rollout of one version: what it is asked for, and how far it is.
type Document struct {
	Spec
	pace.Progress
}

// join puts a rollout together. What operators asked for since the book was written is done to it,
// so that each reader sees the same at once, and the orchestrator writes it down.
func join(s Spec, b Book) Document {
	d := Document{Spec: s, Progress: b.Progress}
	was := b.Policy
	if b.Rollout != d.historyID() {
		d.Progress = s.beginning()
		was, b.Resumed = s.Policy, time.Time{}
	}
	policied := s.Started // its present policy is of then
	if s.Repolicied != nil {
		policied = s.Repolicied.At
	}
	resumed := s.Resumed.After(b.Resumed)
	if resumed && s.Resumed.Before(policied) {
		d = d.forgiving()
	}
	if !was.Equal(s.Policy) {
		d = d.walkedAgain(was, policied)
	}
	if resumed && !s.Resumed.Before(policied) {
		d = d.forgiving()
	}
	d.Promoted, d.Approval = s.Consented, s.Consent
	if s.Aborted {
		d.Phase, d.Batch, d.Since, d.Group, d.Gate = pace.Aborted, 0, s.Finished, nil, nil
	}
	return d
}

// Book is what is stored of how far the rollout is.
func (d Document) Book() Book {
	b := Book{Rollout: d.historyID(), Policy: d.Policy, Resumed: d.Resumed, Progress: d.Progress}
	b.Promoted, b.Approval = false, nil
	return b
}

// beginning is how far a rollout is that has just begun. With a policy no host begins before
// the first plan.
func (s Spec) beginning() pace.Progress {
	p := pace.Progress{Since: s.Started, Phase: pace.Waiting}
	if s.Policy.Plain() {
		p.Phase, p.Batch = pace.Batch, 1
	}
	return p
}

// Repolicied is a change of a rollout's policy by a trigger of the same version.
type Repolicied struct {
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
}

// String says who changed the policy, and when.
func (r Repolicied) String() string {
	text := "changed"
	if r.By != "" {
		text += " by " + r.By
	}
	return text + " at " + r.At.UTC().Format(time.RFC3339)
}

// Supersedes names a rollout whose place another one took.
type Supersedes struct {
	Version string    `json:"version"`
	By      string    `json:"by,omitempty"` // who triggered it
	Started time.Time `json:"started,omitzero"`
}

// String names the rollout, who triggered it, and when.
func (s Supersedes) String() string { return s.Version + triggeredText(s.By, s.Started) }

// TriggeredText says who triggered the rollout, and when, as an addition to its version.
func (s Spec) TriggeredText() string { return triggeredText(s.By, s.Started) }

// triggeredText is Document.TriggeredText.
func triggeredText(by string, at time.Time) string {
	text := ""
	if by != "" {
		text = ", triggered by " + by
	}
	if text != "" && !at.IsZero() {
		text += " at " + at.UTC().Format(time.RFC3339)
	}
	return text
}

// Stop is a pause.
type Stop struct {
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"` // who, or "jorc" by itself
	Since  time.Time `json:"since"`
}

// byJorc is Stop.By of pauses that no operator asked for.
const byJorc = "jorc"

// String returns the pause as the text of a hold.
func (s Stop) String() string {
	return cluster.Hold{Since: s.Since, Reason: s.Reason, By: s.By}.String()
}

func (s Stop) text() string { return "the rollout is paused " + s.String() }

// Rollback says which rollout was taken back and why.
type Rollback struct {
	Version string `json:"version"`
	Reason  string `json:"reason"`
	// WithGates: gates, bakes, consent, windows and freezes hold for it.
	WithGates bool `json:"with_gates,omitempty"`
}

// Paced reports whether hosts need a grant to begin.
func (s Spec) Paced() bool { return !s.Policy.Plain() }

// ignoresFreezes reports whether hosts begin although they are frozen: what restores does.
func (s Spec) ignoresFreezes() bool {
	return s.RollbackOf != nil && !s.RollbackOf.WithGates || s.DuringFreeze != ""
}

// frozen returns the freeze that keeps a member with roles from beginning.
func (s Spec) frozen(c cluster.Control, roles []string, now time.Time) (pace.Frozen, bool) {
	if s.ignoresFreezes() {
		return pace.Frozen{}, false
	}
	return c.Frozen(roles, now)
}

// State is the phase as people and scripts see it: a Phase, or Paused.
func (d Document) State() string {
	if d.Stopped != nil && !d.Over() {
		return Paused
	}
	return string(d.Phase)
}

// StateText is State with its details.
func (d Document) StateText() string {
	phase := d.StepText(d.Policy)
	if d.State() == Paused {
		return Paused + " in phase " + phase
	}
	return phase
}

// equal reports whether both have the same stored form.
func (d Document) equal(o Document) bool { return text.SameJSON(d, o) }

// begin is the document of a new rollout.
func begin(version string, p pace.Policy, by, previous string, now time.Time) Document {
	s := Spec{Version: version, Previous: previous, Policy: p.Complete(), By: by, Started: pace.Second(now)}
	return Document{Spec: s, Progress: s.beginning()}
}

// repolicied is the document with another policy, half way. Where the steps
// change they are walked again from the first, past what is done.
func (d Document) repolicied(p pace.Policy, now time.Time) Document {
	p, was := p.Complete(), d.Policy
	if p.Equal(was) {
		return d
	}
	d.Policy = p
	return d.walkedAgain(was, now)
}

// walkedAgain is the document with a policy that took the place of another one at some time.
func (d Document) walkedAgain(was pace.Policy, now time.Time) Document {
	same := d.Policy.SameWalk(was)
	if !d.Policy.SameGates(was) || !same {
		d.Gate, d.Gated = nil, pace.Second(now)
	}
	switch {
	case same || d.Over():
	case d.Phase == pace.RollingBack:
		d.Group = nil
	default:
		d.Phase, d.Batch, d.Since, d.Group = pace.Waiting, 0, pace.Second(now), nil
	}
	return d
}

// Adopted returns the document of a version that was written to current_version
// past the rollout; ok is false when no such version exists.
func (s Stored) Adopted(now time.Time) (next Document, ok bool) {
	if s.Desired == "" || s.Exists && s.Document.Version == s.Desired {
		return s.Document, false
	}
	return begin(s.Desired, s.pacing(pace.Policy{}, false, now), "", s.Document.lastHealthy(), now), true
}

// pacing is the policy p, or, where p is plain and the cluster has a budget or is frozen,
// the one by which only these pace. ignoresFreezes is that of the document.
func (s Stored) pacing(p pace.Policy, ignoresFreezes bool, now time.Time) pace.Policy {
	_, frozen := s.Control.Freezes.Any(now)
	if p.Plain() && (s.Control.Budget != nil || frozen && !ignoresFreezes) {
		p.MaxParallel = pace.Amount{N: 100, Percent: true}
	}
	return p
}

// Budgeted returns the document of a rollout without a policy in a cluster that got a
// budget, or is frozen: hosts need a grant from then on. ok is false for any other.
func (s Stored) Budgeted(now time.Time) (next Document, ok bool) {
	d := s.Document
	p := s.pacing(d.Policy, d.ignoresFreezes(), now)
	if !s.Current() || d.Paced() || p.Plain() || d.Phase == pace.Aborted {
		return d, false
	}
	return d.repolicied(p, now), true
}

// lastHealthy is the last version that all members ran without a failure.
func (d Document) lastHealthy() string {
	if d.Phase == pace.Done && d.Counts.Failed == 0 {
		return d.Version
	}
	return d.Previous
}

// paused is the document with a pause; one that is paused or over stays.
func (d Document) paused(s Stop, now time.Time) Document {
	if d.Stopped == nil && !d.Over() {
		s.Since = pace.Second(now)
		d.Stopped = &s
	}
	return d
}

// resumed is the document without its pause: what failed until then is
// accepted, and the time without progress starts again.
func (d Document) resumed(now time.Time) Document {
	if d.Stopped != nil && !d.Over() {
		d.Stopped, d.Resumed = nil, pace.Exact(now)
		return d.forgiving()
	}
	return d
}

// forgiving is the document after a resume.
func (d Document) forgiving() Document {
	d.Forgive, d.Since, d.Gate = true, pace.Second(d.Resumed), d.gateAgain(d.Resumed)
	return d
}

// promoted is the document with consent to continue after the canary, or after
// the present step where the policy asks for that.
func (d Document) promoted(by string, now time.Time) Document {
	canary := (d.Phase == pace.Waiting || d.Phase == pace.Canary) && d.Policy.Canary > 0 && !d.Promoted
	step := d.Policy.ApproveEach && d.Steps > 0 && !d.Approved()
	if !d.Over() && (canary || step) {
		d.Consented = d.Consented || canary
		d.Consent = &pace.Approval{Step: d.Steps, By: by, At: pace.Second(now)}
		d.Promoted, d.Approval = d.Consented, d.Consent
	}
	return d
}

// aborted is the document of a rollout in which no further host begins.
func (d Document) aborted(s Stop, now time.Time) Document {
	if !d.Over() {
		s.Since = pace.Second(now)
		d.Phase, d.Batch, d.Since, d.Finished = pace.Aborted, 0, s.Since, s.Since
		d.Group, d.Stopped, d.Gate, d.Aborted = nil, &s, nil, true
	}
	return d
}
