package cluster

import (
	"sync"
	"time"
)

// Times of two agents that keep one record: both were given the same node name.
const (
	firstClaims  = 2                // so often an agent takes the record back at once
	laterClaims  = 10 * time.Minute // and then once in so long, so that both go on noticing
	rivalForgets = 30 * time.Minute // an agent that has not been noticed for so long is gone
)

// rivals notices that another agent keeps the same record. Each writes its name
// into the record; one that finds the other's name there takes the record back.
// A restored backup, or an agent that was replaced, does not answer to that.
type rivals struct {
	self string // this agent's name; empty: nothing is noticed

	mu    sync.Mutex
	mine  bool      // the record bore this agent's name last
	taken int       // how often another took it away since
	claim time.Time // when it was taken back last
	other string    // who answered to that; empty: nobody
	seen  time.Time // when it did last
}

// saw notes whose name the record bears; news says that another agent answered,
// and that this was not said within the last minute.
func (r *rivals) saw(name string, now time.Time) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self == "" || name == "" || name == r.self {
		r.mine = r.mine || name == r.self
		return false
	}
	if !r.mine {
		return false
	}
	if now.Sub(r.claim) > rivalForgets {
		r.taken = 0
	}
	r.mine = false
	if r.taken++; r.taken < firstClaims {
		return false
	}
	news = name != r.other || now.Sub(r.seen) > time.Minute
	r.other, r.seen = name, now
	return news
}

// due is in how long the record that bears name is to be taken back; claims
// tells whether it is to be at all.
func (r *rivals) due(name string, now time.Time) (in time.Duration, claims bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.self == "" || name == r.self:
		return 0, false
	case name == "" || r.taken <= firstClaims:
		return 0, true
	}
	return max(0, laterClaims-now.Sub(r.claim)), true
}

// wrote notes that this agent wrote the record under its own name.
func (r *rivals) wrote(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mine, r.claim = true, now
}

// now is the other agent, empty when there is none, and when it was noticed last.
func (r *rivals) now(at time.Time) (other string, seen time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.other == "" || at.Sub(r.seen) > rivalForgets {
		return "", time.Time{}
	}
	return r.other, r.seen
}
