package change

import (
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// Held is what a host knows of its grant in one change: a part of a record on its disk. It is written before
// anything follows from it, and what the host's report says of the change follows from it alone, so a report that
// was lost, restored from a backup or overwritten is written again.
type Held struct {
	ID    string    `json:"id,omitempty"` // of the grant that it accepted last; empty: none
	Tag   string    `json:"tag,omitempty"`
	Since time.Time `json:"since,omitzero"` // of its acceptance
	Until time.Time `json:"until,omitzero"` // the host has to begin before that; zero: whenever it can
	Ended time.Time `json:"ended,omitzero"` // when it was done; zero: it is open

	Failed   string `json:"failed,omitempty"`   // why it counts as failed
	Stranded bool   `json:"stranded,omitempty"` // something else is asked for, which needs another grant

	Declined string `json:"declined,omitempty"` // the grant that was declined last
	Why      string `json:"why,omitempty"`      // it was declined
	Ready    bool   `json:"ready,omitempty"`    // what made the host decline is over

	// Intent is the grant that is being accepted; nil: none is.
	Intent *Intent `json:"intent,omitempty"`
}

// Intent is a grant that a host is about to accept: its acceptance may be on its way, also after the host's agent has
// ended.
type Intent struct {
	ID    string    `json:"id"`
	Tag   string    `json:"tag,omitempty"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// Open reports whether the host is out of service for a grant, or about to be.
func (h Held) Open() bool { return h.ID != "" && h.Ended.IsZero() }

// Accepting is h when the host is about to accept g.
func (h Held) Accepting(g Grant, now time.Time) Held {
	h.Intent = &Intent{ID: g.ID, Tag: g.Tag, Since: now.UTC().Truncate(time.Second), Until: g.Until}
	return h
}

// Accepted is h once its intent was carried out.
func (h Held) Accepted() Held {
	return Held{ID: h.Intent.ID, Tag: h.Intent.Tag, Since: h.Intent.Since, Until: h.Intent.Until}
}

// Declining is h after the host declined g.
func (h Held) Declining(g Grant, why string) Held {
	h.Declined, h.Why, h.Ready = g.ID, why, false
	return h
}

// Answer is what the host's report says of the change.
func (h Held) Answer(change string) cluster.Answer {
	a := cluster.Answer{Change: change, Declined: h.Declined, Ready: h.Ready, Reason: h.Why}
	if h.ID == "" {
		return a
	}
	a.ID, a.Tag, a.State, a.Since, a.Ended = h.ID, h.Tag, cluster.GrantAccepted, h.Since, h.Ended
	switch {
	case !h.Ended.IsZero():
		a.State = cluster.GrantDone
	case h.Stranded:
		a.State = cluster.GrantStranded
	case h.Failed != "":
		a.State, a.Reason = cluster.GrantFailed, h.Failed
	}
	return a
}

// Settled is what the report says of an intent or of a grant that the host does not know.
type Settled string

// Values of Settled.
const (
	AsKnown  Settled = ""         // there is nothing to settle
	Adopted  Settled = "adopted"  // the acceptance was carried out
	Replaced Settled = "replaced" // it was not, and no longer can be: another grant took the place of the one it was for
	Lost     Settled = "lost"     // the host has a grant of which it knows nothing
	Differs  Settled = "differs"  // the report does not say what the host knows
)

// Settle compares what the host knows with its report, a, and what is granted to it now. What a host said of grants that are
// over is not worth a write.
func (h Held) Settle(a cluster.Answer, granted Grant) Settled {
	switch {
	case h.Intent != nil && a.ID == h.Intent.ID:
		return Adopted
	case h.Intent != nil && granted.ID != h.Intent.ID:
		return Replaced
	case !h.Open() && a.Open() && a.ID != h.ID && !Earlier(a.ID, h.ID):
		return Lost
	case (h.Open() || a.Open() || granted.ID != "" && granted.ID == h.Declined) && stored(h.Answer(a.Change)) != a:
		return Differs
	}
	return AsKnown
}

// stored is an answer as it is read from a report.
func stored(a cluster.Answer) cluster.Answer {
	return cluster.Report{}.WithAnswer(a).Answered(a.Change)
}

// LostOf is what a host knows of a grant of which only its report tells.
func LostOf(a cluster.Answer) Held {
	return Held{ID: a.ID, Tag: a.Tag, Since: a.Since, Failed: "the host lost its record of the grant", Stranded: a.State == cluster.GrantStranded}
}
