package orchestrator

import (
	"time"
)

// Status is how an Orchestrator stands, for the status API.
type Status struct {
	Cluster   string            `json:"cluster"`
	Active    bool              `json:"active"` // it holds the lock
	Since     time.Time         `json:"since,omitzero"`
	Epoch     uint64            `json:"epoch"`     // of the lock: higher than that of all who held it before
	Cycles    uint64            `json:"cycles"`    // since the agent started
	Fails     uint64            `json:"fails"`     // cycles in a row that failed, up to the last
	Discarded uint64            `json:"discarded"` // requests that came while a cycle was running
	Last      *Report           `json:"last"`      // the last cycle; nil: none yet
	Aggregate Aggregate         `json:"aggregate"` // of the view it saw
	Seq       uint64            `json:"seq"`       // of the last event
	Sinks     map[string]uint64 `json:"sinks"`     // the last event that each was given
}

// Status returns how the orchestrator stands.
func (o *Orchestrator) Status() Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.status
	sinks := make(map[string]uint64, len(s.Sinks))
	for name, seq := range s.Sinks {
		sinks[name] = seq
	}
	s.Sinks = sinks
	return s
}

func (o *Orchestrator) setStatus(change func(s *Status)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.status)
}
