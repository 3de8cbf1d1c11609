package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kinds of failures.
const (
	FailureState = "state" // what the host reported
	FailureCheck = "check" // a health check in Consul
)

// FailureSuspect is the state of a failure that was none in the end.
const FailureSuspect = "suspect"

// Failure is something that is wrong with a host.
type Failure struct {
	Host    string    `json:"host"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`    // the category or the check
	State   string    `json:"state"`   // failed, critical, maintenance; warning, suspect
	Service string    `json:"service"` // of a check; empty: the host itself
	Version string    `json:"version"`
	Since   time.Time `json:"since,omitzero"`
	Detail  string    `json:"detail"`
	LogURL  string    `json:"log_url"`
}

// FailedStates returns the states that failed; with suspects also successes that
// are doubtful. They are in no order.
func (s *State) FailedStates(suspects bool) (all []Failure) {
	for host, h := range s.Hosts {
		for category, c := range h.Report.States {
			f := Failure{
				Host: host, Kind: FailureState, Name: category, State: StateFailed,
				Version: c.Version, Since: c.Since, Detail: c.Detail, LogURL: c.LogURL,
			}
			switch {
			case c.State == StateFailed:
				all = append(all, f)
			case suspects && c.Suspect != "":
				f.State, f.Detail = FailureSuspect, c.Suspect
				all = append(all, f)
			}
		}
	}
	return all
}

// Unaccounted is a provisioned host that does not do its part.
type Unaccounted struct {
	Host    string   `json:"host"`
	Reasons []string `json:"reasons"`
}

// Reasons to be unaccounted for.
const (
	ReasonNotMember = "no member of the cluster"
	ReasonNoVersion = "runs no version"
	ReasonNoAgent   = "jorc's own check has expired"
	ReasonDown      = "dead: gossip does not hear it"
	ReasonAbsent    = "not in Consul's catalog"
)

// Unaccounted returns the hosts that were provisioned, but are not members (where
// there is a cluster), run no version, have a jorc agent that died, are down or
// absent, or have no jorc agent and reported a category for the last time longer
// ago than its ttl.
func (s *State) Unaccounted(ttl map[string]time.Duration, now time.Time) []Unaccounted {
	clustered := s.Exists || len(s.Nodes()) > 0
	all := []Unaccounted{}
	for _, node := range slices.Sorted(maps.Keys(s.Hosts)) {
		h := s.Hosts[node]
		if h.Report.States[CategoryProvisioned].State != StateSuccess {
			continue
		}
		var reasons []string
		add := func(holds bool, reason string) {
			if holds {
				reasons = append(reasons, reason)
			}
		}
		add(h.Condition.Liveness == LivenessAbsent, ReasonAbsent)
		add(h.Condition.Liveness == LivenessDown, ReasonDown)
		add(clustered && !h.Member, ReasonNotMember)
		add(h.Report.Version == "", ReasonNoVersion)
		add(h.Condition.AgentCheck() == SignalFailing, ReasonNoAgent)
		if h.Condition.AgentCheck() == SignalNone {
			for _, category := range slices.Sorted(maps.Keys(ttl)) {
				last, reported := h.Report.lastOf(category)
				add(reported && now.Sub(last) > ttl[category]+repeatAfter, fmt.Sprintf("no report of %s for more than %s", category, shortDuration(ttl[category])))
			}
		}
		if len(reasons) > 0 {
			all = append(all, Unaccounted{Host: node, Reasons: reasons})
		}
	}
	return all
}

// shortDuration is d without units that are zero: 24h in place of 24h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
