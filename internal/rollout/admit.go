package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// Snapshot is what was desired and how, read at one moment: with the keys read
// one after the other a node could take the rollout of one version for that of
// another.
type Snapshot struct {
	Desired  string // empty: nothing
	Document Document
	Exists   bool // the document
}

// Self is what a node knows of itself.
type Self struct {
	Node  string
	Roles []string // derived ones, too
	Zone  string
	// Member: it is a member of the cluster.
	Member bool
	// Outside: the cluster's own filter leaves it out.
	Outside bool
	// Holds: it holds a slot of the rollout, so it is out of service already.
	Holds bool
	// Sick: its host has critical checks besides maintenance that jorc set.
	Sick bool
}

// Verdict is what a node is told.
type Verdict string

// Verdicts. Admitted is the only one with which a node may begin.
const (
	Admitted  Verdict = "admitted"
	Nothing   Verdict = "nothing"    // is desired
	NotMember Verdict = "not member" // of the cluster
	NoPart    Verdict = "no part"    // a manager, or outside the cluster's filter
	KeptBack  Verdict = "kept back"  // for its role
	NotYet    Verdict = "not yet"    // not within the rule
	Stopped   Verdict = "stopped"    // the rollout is paused or aborted
	Closed    Verdict = "closed"     // outside the windows
	Full      Verdict = "full"       // too many members are out of service
)

// Admission is whether a node may begin, and if not why.
type Admission struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	// Slot: it needs a slot of group Slots before it begins, and asks again
	// when it has one.
	Slot bool `json:"slot"`
	// Until is when to ask again even if the snapshot stays; zero: no need to.
	Until time.Time `json:"until,omitzero"`
}

// OK tells whether the node may begin.
func (a Admission) OK() bool { return a.Verdict == Admitted }

// Admit tells whether the node may begin with the desired version now. A node
// that holds a slot is told to go on whatever the rule says: it is out of
// service already, and only the desired version may bring it back.
func Admit(s Snapshot, self Self, now time.Time) Admission {
	d := s.Document
	switch {
	case s.Desired == "":
		return Admission{Verdict: Nothing, Reason: "no version was triggered"}
	case !s.Exists:
		return Admission{Verdict: Admitted, Reason: "there is no rollout: everybody is admitted"}
	case d.Version != s.Desired:
		return Admission{Verdict: Admitted, Reason: fmt.Sprintf(
			"current_version was written past the rollout of %s: everybody is admitted", d.Version)}
	case d.Policy.Plain() && d.Phase == Aborted:
		return Admission{Verdict: Stopped, Reason: "the rollout was aborted"}
	case d.Policy.Plain() && d.Stopped != nil:
		return Admission{Verdict: Stopped, Reason: d.Stopped.text()}
	case d.Policy.Plain():
		return Admission{Verdict: Admitted, Reason: "everybody is admitted"}
	case self.Holds:
		return Admission{Verdict: Admitted, Slot: true, Reason: "it holds a slot and is out of service already"}
	}
	if a, ok := d.excludes(self); ok {
		return a
	}
	return d.admit(self, now)
}

// excludes tells whether the rollout is not about the node at all.
func (d Document) excludes(self Self) (Admission, bool) {
	kept := d.Policy.KeepsBack(self.Roles)
	switch {
	case !self.Member:
		return Admission{Verdict: NotMember, Reason: "it is no member of the cluster: 'jorc cluster join' makes it one"}, true
	case slices.Contains(self.Roles, cluster.RoleManager):
		return Admission{Verdict: NoPart, Reason: "managers are no part of a rollout"}, true
	case self.Outside:
		return Admission{Verdict: NoPart, Reason: "the cluster's filter (param " + cluster.ParamFilter + ") leaves it out"}, true
	case kept != "":
		return Admission{Verdict: KeptBack, Reason: fmt.Sprintf("the policy keeps back role %q", kept)}, true
	}
	return Admission{}, false
}

func (d Document) admit(self Self, now time.Time) Admission {
	switch {
	case d.Phase == Aborted:
		return Admission{Verdict: Stopped, Reason: "the rollout was aborted"}
	case d.Stopped != nil && !d.Over():
		return Admission{Verdict: Stopped, Reason: d.Stopped.text()}
	case !d.Rule.Admits(d.Policy.KeyOf(d.Version, self.Node, self.Roles, self.Zone)):
		return Admission{Verdict: NotYet, Reason: "not admitted yet: phase " + d.StateText()}
	case d.Phase != RollingBack && !windowsOpen(d.Policy.Windows, now):
		return closed(windowsChange(d.Policy.Windows, now))
	case d.Rule.Full && !self.Sick:
		return Admission{Verdict: Full, Reason: "as many members are out of service as the policy allows"}
	}
	return Admission{Verdict: Admitted, Slot: true, Reason: "admitted in phase " + d.StateText()}
}

func closed(opens time.Time) Admission {
	a := Admission{Verdict: Closed, Until: opens, Reason: "outside the window"}
	if !opens.IsZero() {
		a.Reason += " until " + opens.UTC().Format(time.RFC3339)
	}
	return a
}

// text is a pause in words.
func (s Stop) text() string {
	text := "the rollout is paused since " + s.Since.UTC().Format(time.RFC3339)
	if s.By != "" {
		text += " by " + s.By
	}
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}
