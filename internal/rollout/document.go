package rollout

import (
	"fmt"
	"time"
)

// Phase is how far a rollout has come.
type Phase string

// Phases.
const (
	Waiting     Phase = "waiting" // nobody is admitted yet
	Canary      Phase = "canary"
	Batch       Phase = "batch" // see Document.Batch
	RollingBack Phase = "rolling back"
	Done        Phase = "done"
	Aborted     Phase = "aborted"
)

// Paused is what Document.State says while the rollout is paused.
const Paused = "paused"

// Document is the rollout of one version, at the key rollout.
type Document struct {
	Version string `json:"version"`
	// Previous is the last version that all members ran without a failure;
	// empty: none is known.
	Previous string    `json:"previous,omitempty"`
	Policy   Policy    `json:"policy"`
	By       string    `json:"by,omitempty"` // who triggered it
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"` // done or aborted

	Phase  Phase     `json:"phase"`
	Batch  int       `json:"batch,omitempty"` // in phase Batch: which, from 1
	Since  time.Time `json:"since"`           // of the phase
	Rule   Rule      `json:"rule"`
	Counts Counts    `json:"counts"` // at the last change of phase

	// Stopped says that the rollout is paused. Phase is then where it goes on.
	Stopped *Stop `json:"stopped,omitempty"`
	// Promoted: the canary needs nobody's consent any more.
	Promoted bool `json:"promoted,omitempty"`
	// Forgiven is how many failures somebody has seen and gone on with; Forgive
	// says that those which there are now are to be.
	Forgiven int  `json:"forgiven,omitempty"`
	Forgive  bool `json:"forgive,omitempty"`
	// RollbackOf says that this rollout takes back another one.
	RollbackOf *Rollback `json:"rollback_of,omitempty"`
}

// Stop is a pause.
type Stop struct {
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"` // who, or "jorc" by itself
	Since  time.Time `json:"since"`
}

// byJorc is Stop.By of decisions that nobody made.
const byJorc = "jorc"

// Rollback says which rollout was taken back and why.
type Rollback struct {
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

// Counts are numbers of members. Members is all that the rollout is about;
// each of them is in one of the others.
type Counts struct {
	Members int `json:"members"`
	Done    int `json:"done"`    // at the version, and no slot held
	Failed  int `json:"failed"`  // at this version
	Working int `json:"working"` // a slot is held
	Down    int `json:"down"`    // they follow when they are back
	Pending int `json:"pending"`
}

// Over tells whether the rollout has come to an end.
func (d Document) Over() bool { return d.Phase == Done || d.Phase == Aborted }

// State is the phase as people and scripts see it: a Phase, or Paused.
func (d Document) State() string {
	if d.Stopped != nil && !d.Over() {
		return Paused
	}
	return string(d.Phase)
}

// StateText is State with what belongs to it.
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

// UsesSlots tells whether nodes need a slot to begin.
func (d Document) UsesSlots() bool { return !d.Policy.Plain() }

// equal tells whether both say the same.
func (d Document) equal(o Document) bool {
	same := d.Version == o.Version && d.Previous == o.Previous && d.By == o.By && d.Policy.equal(o.Policy) &&
		d.Started.Equal(o.Started) && d.Finished.Equal(o.Finished) && d.Since.Equal(o.Since)
	same = same && d.Phase == o.Phase && d.Batch == o.Batch && d.Rule.equal(o.Rule) && d.Counts == o.Counts
	same = same && d.Promoted == o.Promoted && d.Forgiven == o.Forgiven && d.Forgive == o.Forgive
	return same && equalTo(d.Stopped, o.Stopped, func(a, b Stop) bool {
		return a.Reason == b.Reason && a.By == b.By && a.Since.Equal(b.Since)
	}) && equalTo(d.RollbackOf, o.RollbackOf, func(a, b Rollback) bool { return a == b })
}

func equalTo[T any](a, b *T, same func(a, b T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(*a, *b)
}
