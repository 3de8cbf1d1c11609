// Package lease lets a host ask for itself to be out of service: for a reboot, a patch, or a
// command. A lease is a change of one host. The host asks in its report, the orchestrator grants
// it a place within the budget, freezes and pauses, and it ends once the host is healthy
// again. It needs no session, so it survives a reboot and the restart of the agent.
//
// Host is the host's side; Changes has what the orchestrator plans.
package lease

import (
	"fmt"
	"time"
)

// Defaults and bounds of a Request.
const (
	DefaultFor        = 2 * time.Hour
	DefaultMinHealthy = 30 * time.Second // also the least
	MostFor           = 7 * 24 * time.Hour
	MostDrain         = time.Hour
	MostID            = 128 // bytes of an ID
	MostReason        = 200 // bytes of a reason
)

// Request is what a caller asks for.
type Request struct {
	// ID names the caller. The caller that has the lease gets it again; another one gets
	// HeldByOther.
	ID     string
	Reason string
	// For is how long the lease may take. After that it ends by itself on a host that is healthy;
	// on another one it is trouble, and named. 0: DefaultFor.
	For time.Duration
	// Drain is how long the host is in maintenance before the caller may go ahead.
	Drain time.Duration
	// MinHealthy is how long all checks of the host must have passed before the lease is over. 0:
	// DefaultMinHealthy.
	MinHealthy time.Duration
	// Keep is for how long the lease is kept, before it is Ready, when no call of its ID is open. 0: it
	// ends with the call.
	Keep time.Duration
	// Connected: Begin does not return once the lease is Ready, but with the end of its context, and the
	// lease ends when no call of its ID has been open for Keep, also after it was Ready.
	Connected bool
	ordered   bool // by an operator, on another host
	// Job is the job that the caller is a task of; empty: of no job. A job that takes its host out of
	// service has no need of a lease.
	Job string
}

// Check returns a Refusal of kind InvalidRequest for a request that makes no sense.
func (r Request) Check() error {
	invalid := func(format string, args ...any) error {
		return &Refusal{Kind: InvalidRequest, Reason: fmt.Sprintf(format, args...), Final: true}
	}
	switch {
	case r.ID == "":
		return invalid("it has no ID")
	case len(r.ID) > MostID:
		return invalid("its ID has %d bytes, and may have %d", len(r.ID), MostID)
	case len(r.Reason) > MostReason:
		return invalid("its reason has %d bytes, and may have %d", len(r.Reason), MostReason)
	case r.For < 0 || r.For > MostFor:
		return invalid("it is for %v: give a time up to %v", r.For, MostFor)
	case r.Drain < 0 || r.Drain > MostDrain:
		return invalid("it drains for %v: give a time up to %v", r.Drain, MostDrain)
	case r.MinHealthy != 0 && r.MinHealthy < DefaultMinHealthy:
		return invalid("it ends after %v in health: give at least %v", r.MinHealthy, DefaultMinHealthy)
	case r.Keep < 0:
		return invalid("it is kept for %v: give no negative time", r.Keep)
	}
	return nil
}

// Kind says why a lease is not granted.
type Kind string

// Kinds of refusals.
const (
	Budget         Kind = "budget"
	Freeze         Kind = "freeze"
	Paused         Kind = "paused" // the cluster is, or is only observed
	NoOrchestrator Kind = "no_orchestrator"
	NotHealthy     Kind = "not_healthy" // of an end: a check of the host does not pass
	NotMember      Kind = "not_member"
	HeldByOther    Kind = "held_by_other" // another caller has this host's lease
	Held           Kind = "held"          // an operator holds or drained the host
	Waiting        Kind = "waiting"       // its place, its drain, or the orchestrator's answer
	InsideJob      Kind = "inside_job"    // the caller is a task of a job that does not disturb
	InvalidRequest Kind = "invalid_request"
	Unreachable    Kind = "unreachable" // Consul does not answer
)

// Refusal says why a lease is not granted now.
type Refusal struct {
	Kind   Kind   `json:"kind"`
	Reason string `json:"reason"` // one line
	// Final: waiting until the caller's deadline cannot help.
	Final bool `json:"final,omitempty"`
	// Answered: the orchestrator says so.
	Answered bool `json:"answered,omitempty"`
	// At is when it may change by itself; zero: that is not known.
	At time.Time `json:"at,omitzero"`
}

// Error implements error.
func (r *Refusal) Error() string { return r.Reason }

// State says how far a lease is.
type State string

// Values of State.
const (
	None     State = ""
	Asked    State = "asked"    // it waits for a place
	Placed   State = "placed"   // it has a place, and the host is in service: no call of its ID is open
	Draining State = "draining" // the host is in maintenance
	Ready    State = "ready"    // the caller may go ahead
	Ending   State = "ending"   // the host is back in service, and its checks are awaited
	Covered  State = "covered"  // the job that the caller is a task of has taken the host out
)

// Status is this host's lease as it is now.
type Status struct {
	State  State     `json:"state"`
	ID     string    `json:"id,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of State
	Until  time.Time `json:"until,omitzero"` // when its time is over
	// Waits is why it is not further; nil: that is not known, or it does not wait.
	Waits *Refusal `json:"waits,omitempty"`
	// Rebooted: the host was rebooted since the lease was granted.
	Rebooted bool `json:"rebooted,omitempty"`
	// Trouble: its time is over, and the host is not healthy.
	Trouble string `json:"trouble,omitempty"`
}
