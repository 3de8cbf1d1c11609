package rollout

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
)

// Paused is what Document.State says while the rollout is paused.
const Paused = "paused"

// Document is the rollout of one version.
type Document struct {
	Version string `json:"version"`
	// Previous is the last version that all members ran without a failure;
	// empty: not known.
	Previous string      `json:"previous,omitempty"`
	Policy   pace.Policy `json:"policy"`
	By       string      `json:"by,omitempty"` // who triggered it
	Reason   string      `json:"reason,omitempty"`
	Started  time.Time   `json:"started"`
	Finished time.Time   `json:"finished,omitzero"` // done or aborted

	// Progress is what Plan makes of it.
	pace.Progress

	// Stopped says that the rollout is paused. Phase is then where it continues.
	Stopped *Stop `json:"stopped,omitempty"`
	// RollbackOf: this rollout takes another one back.
	RollbackOf *Rollback `json:"rollback_of,omitempty"`
	// Supersedes is the unfinished rollout that this one took the place of.
	Supersedes *Supersedes `json:"supersedes,omitempty"`
	// Exceptions are the rules of the cluster that it does not follow.
	pace.Exceptions
	// Repolicied is the last change of the policy; nil: there was none.
	Repolicied *Repolicied `json:"repolicied,omitempty"`
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
func (d Document) TriggeredText() string { return triggeredText(d.By, d.Started) }

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
func (d Document) Paced() bool { return !d.Policy.Plain() }

// ignoresFreezes reports whether hosts begin although they are frozen: what restores does.
func (d Document) ignoresFreezes() bool {
	return d.RollbackOf != nil && !d.RollbackOf.WithGates || d.DuringFreeze != ""
}

// frozen returns the freeze that keeps a member with roles from beginning.
func (d Document) frozen(c cluster.Control, roles []string, now time.Time) (pace.Frozen, bool) {
	if d.ignoresFreezes() {
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
func (d Document) equal(o Document) bool {
	a, errA := json.Marshal(d)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// begin is the document of a new rollout. With a policy no host begins before
// the first plan.
func begin(version string, p pace.Policy, by, previous string, now time.Time) Document {
	d := Document{
		Version: version, Previous: previous, Policy: p.Complete(), By: by, Started: pace.Second(now),
		Progress: pace.Progress{Since: pace.Second(now), Phase: pace.Waiting},
	}
	if d.Policy.Plain() {
		d.Phase, d.Batch = pace.Batch, 1
	}
	return d
}

// repolicied is the document with another policy, half way. Where the steps
// change they are walked again from the first, past what is done.
func (d Document) repolicied(p pace.Policy, now time.Time) Document {
	p = p.Complete()
	if p.Equal(d.Policy) {
		return d
	}
	same := p.SameWalk(d.Policy)
	if !p.SameGates(d.Policy) || !same {
		d.Gate, d.Gated = nil, pace.Second(now)
	}
	d.Policy = p
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
		d.Stopped, d.Forgive, d.Since, d.Gate = nil, true, pace.Second(now), d.gateAgain(now)
	}
	return d
}

// promoted is the document with consent to continue after the canary, or after
// the present step where the policy asks for that.
func (d Document) promoted(by string, now time.Time) Document {
	canary := (d.Phase == pace.Waiting || d.Phase == pace.Canary) && d.Policy.Canary > 0 && !d.Promoted
	step := d.Policy.ApproveEach && d.Steps > 0 && !d.Approved()
	if !d.Over() && (canary || step) {
		d.Promoted = d.Promoted || canary
		d.Approval = &pace.Approval{Step: d.Steps, By: by, At: pace.Second(now)}
	}
	return d
}

// aborted is the document of a rollout in which no further host begins.
func (d Document) aborted(s Stop, now time.Time) Document {
	if !d.Over() {
		s.Since = pace.Second(now)
		d.Phase, d.Batch, d.Since, d.Finished = pace.Aborted, 0, s.Since, s.Since
		d.Group, d.Stopped, d.Gate = nil, &s, nil
	}
	return d
}
