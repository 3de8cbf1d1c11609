package catalog

import "time"

// ServiceStatus is how one service of this host stands.
type ServiceStatus struct {
	ID, Name   string
	Registered bool      // the agent had it when last asked
	Stored     bool      // by `jorc service register`, not from the configuration
	Presence   bool      // jorc's own service
	Since      time.Time // of Registered or, when it is false, of Error
	Error      string    // what keeps it from being registered; "" when nothing does
	Checks     []CheckStatus
}

// CheckStatus is how one check of a service stands.
type CheckStatus struct {
	ID, Name string
	Kind     string // script, http, tcp, udp, grpc, h2ping, alias, ttl; presence for jorc's own
	State    string // passing, warning, critical; "" while nothing is known
	// Output is that of the last run. What Consul shows of a script check is the
	// output at the time its State last changed: anything else would be a write
	// to Raft for every run.
	Output     string
	Since      time.Time // of State, as far as this process knows
	LastRun    time.Time // script checks only, as the following
	Took       time.Duration
	Runs       uint64
	Heartbeats uint64
	Error      string // of the last heartbeat
}

// Status returns all wanted services in the order of the configuration,
// jorc's own first, then those that cannot be wanted because their id is taken,
// then those that are still to be removed.
func (r *Registrar) Status() []ServiceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]ServiceStatus, 0, len(r.entries))
	for _, w := range r.wanted {
		out = append(out, r.statusOf(w.id, w))
	}
	out = append(out, r.twice...)
	for _, id := range r.leaving() {
		out = append(out, r.statusOf(id, nil))
	}
	return out
}

func (r *Registrar) statusOf(id string, w *registration) ServiceStatus {
	s := ServiceStatus{ID: id, Name: id}
	if w != nil {
		s.Name, s.Stored, s.Presence = w.name, w.stored, w.presence
		for _, c := range w.checks {
			if state, ok := r.checks[c.id]; ok {
				s.Checks = append(s.Checks, state.report())
			}
		}
	}
	if e, ok := r.entries[id]; ok {
		s.Registered, s.Since = e.registered, e.since
		if e.err != nil {
			s.Error = e.err.Error()
		}
	}
	if s.Error == "" && r.agentErr != nil {
		s.Error = r.agentErr.Error()
	}
	return s
}
