package rollout

import (
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
)

// Phase is the stage of a rollout.
type Phase string

// Phases.
const (
	Waiting     Phase = "waiting" // no host is admitted yet
	Canary      Phase = "canary"
	Batch       Phase = "batch" // see Document.Batch
	RollingBack Phase = "rolling back"
	Done        Phase = "done"
	Aborted     Phase = "aborted"
)

// Paused is what Document.State says while the rollout is paused.
const Paused = "paused"

// Document is the rollout of one version.
type Document struct {
	Version string `json:"version"`
	// Previous is the last version that all members ran without a failure;
	// empty: not known.
	Previous string    `json:"previous,omitempty"`
	Policy   Policy    `json:"policy"`
	By       string    `json:"by,omitempty"` // who triggered it
	Reason   string    `json:"reason,omitempty"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"` // done or aborted

	Phase  Phase     `json:"phase"`
	Batch  int       `json:"batch,omitempty"` // in phase Batch: which, from 1
	Since  time.Time `json:"since"`           // of the phase
	Group  *Group    `json:"group,omitempty"` // the group that is admitted, with an order or zone by zone
	Counts Counts    `json:"counts"`          // at the last change of phase

	// Steps is how many steps were admitted, the present one included.
	Steps int `json:"steps,omitempty"`
	// Gate is that of the present step, once it is done; PassedGate the one before.
	Gate       *GateProgress `json:"gate,omitempty"`
	PassedGate *PassedGate   `json:"passed_gate,omitempty"`
	// Gated is until when the last gate held the rollout; Asks how many runs gates
	// asked for.
	Gated time.Time `json:"gated,omitzero"`
	Asks  int       `json:"asks,omitempty"`
	// Approval is the last consent of an operator.
	Approval *Approval `json:"approval,omitempty"`

	// Stopped says that the rollout is paused. Phase is then where it continues.
	Stopped *Stop `json:"stopped,omitempty"`
	// Promoted: the rollout needs no consent to continue after the canary.
	Promoted bool `json:"promoted,omitempty"`
	// Forgiven is how many failures were accepted by a resume; Forgive requests
	// that for the present ones.
	Forgiven int  `json:"forgiven,omitempty"`
	Forgive  bool `json:"forgive,omitempty"`
	// RollbackOf: this rollout takes another one back.
	RollbackOf *Rollback `json:"rollback_of,omitempty"`
	// Supersedes is the unfinished rollout that this one took the place of.
	Supersedes *Supersedes `json:"supersedes,omitempty"`
	// DuringFreeze is why hosts begin although they are frozen; empty: they do not.
	DuringFreeze string `json:"during_freeze,omitempty"`
	// Repolicied is the last change of the policy; nil: there was none.
	Repolicied *Repolicied `json:"repolicied,omitempty"`
}

// Repolicied is a change of a rollout's policy by a trigger of the same version.
type Repolicied struct {
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
}

func (r Repolicied) equal(o Repolicied) bool { return r.By == o.By && r.At.Equal(o.At) }

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

func (s Supersedes) equal(o Supersedes) bool {
	return s.Version == o.Version && s.By == o.By && s.Started.Equal(o.Started)
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

// Group is one place in the order of roles and one zone.
type Group struct {
	Place int    `json:"place"`
	Zone  string `json:"zone,omitempty"`
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
}

// Counts are numbers of members. Members is all that take part; each of them is
// in one of the others.
type Counts struct {
	Members int `json:"members"`
	Done    int `json:"done"`    // at the version, without an open grant
	Failed  int `json:"failed"`  // at this version
	Working int `json:"working"` // with an open grant; without a policy: its workflow runs
	Down    int `json:"down"`    // they follow when they are back
	Pending int `json:"pending"`
	GivenUp int `json:"given_up"`       // by an operator
	Held    int `json:"held,omitempty"` // held or drained by an operator; they follow when that ends
}

// Over reports whether the rollout has ended.
func (d Document) Over() bool { return d.Phase == Done || d.Phase == Aborted }

// Paced reports whether hosts need a grant to begin.
func (d Document) Paced() bool { return !d.Policy.Plain() }

// ignoresFreezes reports whether hosts begin although they are frozen: what restores does.
func (d Document) ignoresFreezes() bool { return d.RollbackOf != nil || d.DuringFreeze != "" }

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
	phase := string(d.Phase)
	if d.Phase == Batch {
		phase = fmt.Sprintf("batch %d of %d", d.Batch, max(1, len(d.Policy.Batches)))
	}
	if d.State() == Paused {
		return Paused + " in phase " + phase
	}
	return phase
}

// equal reports whether both have the same stored form.
func (d Document) equal(o Document) bool {
	same := d.Version == o.Version && d.Previous == o.Previous && d.By == o.By && d.Reason == o.Reason && d.DuringFreeze == o.DuringFreeze && d.Policy.equal(o.Policy) &&
		d.Started.Equal(o.Started) && d.Finished.Equal(o.Finished) && d.Since.Equal(o.Since)
	same = same && d.Phase == o.Phase && d.Batch == o.Batch && d.Counts == o.Counts && equalTo(d.Group, o.Group, func(a, b Group) bool { return a == b })
	same = same && d.Promoted == o.Promoted && d.Forgiven == o.Forgiven && d.Forgive == o.Forgive
	same = same && d.Steps == o.Steps && d.Gated.Equal(o.Gated) && d.Asks == o.Asks && equalTo(d.Gate, o.Gate, GateProgress.equal)
	same = same && equalTo(d.PassedGate, o.PassedGate, func(a, b PassedGate) bool {
		return a.Step == b.Step && a.At.Equal(b.At) && a.Answer == b.Answer && a.By == b.By
	}) && equalTo(d.Approval, o.Approval, func(a, b Approval) bool { return a.Step == b.Step && a.By == b.By && a.At.Equal(b.At) })
	return same && equalTo(d.Stopped, o.Stopped, func(a, b Stop) bool {
		return a.Reason == b.Reason && a.By == b.By && a.Since.Equal(b.Since)
	}) && equalTo(d.RollbackOf, o.RollbackOf, func(a, b Rollback) bool { return a == b }) && equalTo(d.Supersedes, o.Supersedes, Supersedes.equal) &&
		equalTo(d.Repolicied, o.Repolicied, Repolicied.equal)
}

func equalTo[T any](a, b *T, same func(a, b T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(*a, *b)
}

// stamp is a time as documents have it: in seconds, as nodes report theirs.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// begin is the document of a new rollout. With a policy no host begins before
// the first plan.
func begin(version string, p Policy, by, previous string, now time.Time) Document {
	d := Document{
		Version: version, Previous: previous, Policy: p.Complete(), By: by, Started: stamp(now), Since: stamp(now), Phase: Waiting,
	}
	if d.Policy.Plain() {
		d.Phase, d.Batch = Batch, 1
	}
	return d
}

// repolicied is the document with another policy, half way. Where the steps
// change they are walked again from the first, past what is done.
func (d Document) repolicied(p Policy, now time.Time) Document {
	p = p.Complete()
	if p.equal(d.Policy) {
		return d
	}
	same := p.sameWalk(d.Policy)
	if !p.sameGates(d.Policy) || !same {
		d.Gate, d.Gated = nil, stamp(now)
	}
	d.Policy = p
	if !same && !d.Over() && d.Phase != RollingBack {
		d.Phase, d.Batch, d.Since, d.Group = Waiting, 0, stamp(now), nil
	}
	return d
}

// Adopted returns the document of a version that was written to current_version
// past the rollout; ok is false when no such version exists.
func (s Stored) Adopted(now time.Time) (next Document, ok bool) {
	if s.Desired == "" || s.Exists && s.Document.Version == s.Desired {
		return s.Document, false
	}
	return begin(s.Desired, s.pacing(Policy{}, false, now), "", s.Document.lastHealthy(), now), true
}

// pacing is the policy p, or, where p is plain and the cluster has a budget or is frozen,
// the one by which only these pace. ignoresFreezes is that of the document.
func (s Stored) pacing(p Policy, ignoresFreezes bool, now time.Time) Policy {
	_, frozen := s.Control.Freezes.Any(now)
	if p.Plain() && (s.Control.Budget != nil || frozen && !ignoresFreezes) {
		p.MaxParallel = Amount{N: 100, Percent: true}
	}
	return p
}

// Budgeted returns the document of a rollout without a policy in a cluster that got a
// budget, or is frozen: hosts need a grant from then on. ok is false for any other.
func (s Stored) Budgeted(now time.Time) (next Document, ok bool) {
	d := s.Document
	p := s.pacing(d.Policy, d.ignoresFreezes(), now)
	if !s.Current() || d.Paced() || p.Plain() || d.Phase == Aborted {
		return d, false
	}
	return d.repolicied(p, now), true
}

// lastHealthy is the last version that all members ran without a failure.
func (d Document) lastHealthy() string {
	if d.Phase == Done && d.Counts.Failed == 0 {
		return d.Version
	}
	return d.Previous
}

// paused is the document with a pause; one that is paused or over stays.
func (d Document) paused(s Stop, now time.Time) Document {
	if d.Stopped == nil && !d.Over() {
		s.Since = stamp(now)
		d.Stopped = &s
	}
	return d
}

// resumed is the document without its pause: what failed until then is
// accepted, and the time without progress starts again.
func (d Document) resumed(now time.Time) Document {
	if d.Stopped != nil && !d.Over() {
		d.Stopped, d.Forgive, d.Since, d.Gate = nil, true, stamp(now), d.gateAgain(now)
	}
	return d
}

// promoted is the document with consent to continue after the canary, or after
// the present step where the policy asks for that.
func (d Document) promoted(by string, now time.Time) Document {
	canary := (d.Phase == Waiting || d.Phase == Canary) && d.Policy.Canary > 0 && !d.Promoted
	step := d.Policy.ApproveEach && d.Steps > 0 && !d.approved()
	if !d.Over() && (canary || step) {
		d.Promoted = d.Promoted || canary
		d.Approval = &Approval{Step: d.Steps, By: by, At: stamp(now)}
	}
	return d
}

// aborted is the document of a rollout in which no further host begins.
func (d Document) aborted(s Stop, now time.Time) Document {
	if !d.Over() {
		s.Since = stamp(now)
		d.Phase, d.Batch, d.Since, d.Finished = Aborted, 0, s.Since, s.Since
		d.Group, d.Stopped, d.Gate = nil, &s, nil
	}
	return d
}
