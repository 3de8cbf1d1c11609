package rollout

import (
	"fmt"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// States of a Grant as they are stored. What the host answers is in its report.
const (
	Offered   = "offered"
	Withdrawn = "withdrawn" // the host did not answer
	GivenUp   = "given up"  // by an operator: the host does not count any more
)

// Grant is the permission for one host to begin with one version, at the key
// host/<node>/grant. Orchestrators and operators write it, the host reads it.
type Grant struct {
	ID      string    `json:"id,omitempty"`
	Version string    `json:"version,omitempty"`
	State   string    `json:"state,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of State
	// Session is that of the orchestrator's lock, and Rollout the index of the
	// rollout's document: the offer is void as soon as one of them is another.
	Session string `json:"session,omitempty"`
	Rollout uint64 `json:"rollout,omitempty"`
	// Until is the end of the window; the host declines from then on. Zero: none.
	Until time.Time `json:"until,omitzero"`
	// Tries is how many offers in a row the host did not answer.
	Tries  int    `json:"tries,omitempty"`
	By     string `json:"by,omitempty"` // who gave it up
	Reason string `json:"reason,omitempty"`
	// Retry is when the host was last asked to try again at once.
	Retry time.Time `json:"retry,omitzero"`

	index uint64 // of the key
}

const (
	// answerWithin is how long an offer stays without an answer.
	answerWithin = 30 * time.Second
	// longestRest is the longest pause between offers to a host that does not answer.
	longestRest = 10 * time.Minute
)

// answered reports whether the host accepted or declined the grant.
func (g Grant) answered(a cluster.GrantAnswer) bool { return g.ID == a.ID || g.ID == a.Declined }

// rested returns when a host that did not answer is offered a grant again.
func (g Grant) rested() time.Time {
	rest := answerWithin
	for n := 1; n < g.Tries && rest < longestRest; n++ {
		rest *= 2
	}
	return g.Since.Add(min(rest, longestRest))
}

// Offer says that a host is to be offered a grant.
type Offer struct {
	Node  string
	Tries int // offers that it did not answer before
}

// Ledger is the document at orchestrate/grants. Every transaction that offers
// grants swaps it, so that of two plans made of the same state one is carried
// out.
type Ledger struct {
	Term uint64 `json:"term"` // counts holders of the lock
	Seq  uint64 `json:"seq"`  // counts transactions in a term
	// Quiet is until when nothing is granted, as Consul's KV was restored: hosts
	// report meanwhile what they are at.
	Quiet time.Time `json:"quiet,omitzero"`
}

func (l Ledger) next() Ledger {
	l.Seq++
	return l
}

// id names a grant of the transaction that writes l. Sessions differ also where
// a restored ledger counts the same numbers again.
func (l Ledger) id(session string) string {
	return fmt.Sprintf("%d.%d.%.8s", l.Term, l.Seq, session)
}
