package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// WhyFacts are what is known of why a node runs what it runs. What the ledger
// does not know is filled in by who asks.
type WhyFacts struct {
	Node     string
	Desired  string
	Reported bool
	Report   Report
	Host     Host // of the catalog, with its condition

	HoldFile string   // what the hold file of the host says, in words; empty: it does not exist
	Held     []string // what holds the node or its cluster, in words
	Slots    []string // slots that the host holds or waits for, in words
	Rollout  []Reason // what the rollout says
}

// Why is why a node runs what it runs.
type Why struct {
	Host    string   `json:"host"`
	Desired string   `json:"desired"`
	Version string   `json:"version"`
	Pending bool     `json:"pending"` // it should run another version
	Reasons []Reason `json:"reasons"`
}

// Reason is one thing that keeps a node from the desired version, or says that
// nothing does.
type Reason struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Reasons, the ones that explain most first.
const (
	WhyNothingDesired = "nothing desired" // no version was triggered
	WhyArrived        = "arrived"
	WhyHost           = "host" // dead, or not in the catalog
	WhyAgent          = "agent"
	WhyCheck          = "check"       // a critical one
	WhyMaintenance    = "maintenance" // of the node or of one of its services
	WhyHeld           = "held"
	WhySlot           = "slot"     // held or waited for by the host
	WhyRollout        = "rollout"  // it is not admitted by the rollout
	WhyGrant          = "grant"    // of the rollout
	WhyStopped        = "stopped"  // the rollout is paused or aborted
	WhyState          = "state"    // failed, pending, running; of what arrived also suspect
	WhyTemplate       = "template" // failed, is stale, or waits longer than usual
	WhyUnknown        = "unknown"
)

// InRollout reports whether the rollout concerns the node: it has to update, or its
// grant is still open.
func (f WhyFacts) InRollout() bool {
	return f.Desired != "" && (f.Desired != f.Report.Version || f.Report.Answered(VersionChange).Open())
}

// WhyFacts are the facts about node, one of the state's hosts. It returns why the
// desired version, or what the node reports, cannot be read.
func (s *State) WhyFacts(node string) (WhyFacts, error) {
	f := WhyFacts{Node: node}
	if err := s.Damaged[KeyDesired]; err != nil {
		return f, err
	}
	if err := s.DamagedReport(node); err != nil {
		return f, fmt.Errorf("what node %q reports: %w", node, err)
	}
	f.Host = *s.Hosts[node]
	f.Desired, f.Report, f.Reported, f.HoldFile = s.Desired, f.Host.Report, f.Host.Reported, f.Host.Report.HeldByFile()
	return f, nil
}

// Explain tells why the node of f runs what it runs.
func Explain(f WhyFacts) Why {
	w := Why{Host: f.Node, Desired: f.Desired, Version: f.Report.Version, Reasons: []Reason{}}
	w.Pending = f.Desired != "" && f.Desired != w.Version
	switch {
	case f.Desired == "":
		w.add(WhyNothingDesired, "no version was triggered")
	case !w.Pending:
		since := ""
		if !f.Report.Since.IsZero() {
			since = " since " + f.Report.Since.Format(time.RFC3339)
		}
		w.add(WhyArrived, "it runs %s%s", f.Desired, since)
		w.condition(f.Host)
		for _, r := range f.Rollout {
			if r.Reason == WhyGrant {
				w.Reasons = append(w.Reasons, r)
			}
		}
		w.doubts(f.Report)
	default:
		w.explain(f)
	}
	w.templates(f.Report)
	return w
}

// templates lists the templates that failed, are stale or wait longer than usual.
func (w *Why) templates(r Report) {
	all, more := r.TemplateProblems()
	for _, p := range all {
		w.add(WhyTemplate, "%s", p)
	}
	if more > 0 {
		w.add(WhyTemplate, "and %d other templates", more)
	}
}

// Stopped reports whether an operator stopped the update: the host is held, or the
// rollout is paused or aborted.
func (w Why) Stopped() bool {
	return slices.ContainsFunc(w.Reasons, func(r Reason) bool { return r.Reason == WhyHeld || r.Reason == WhyStopped })
}

// explain lists what keeps the node.
func (w *Why) explain(f WhyFacts) {
	w.condition(f.Host)
	if f.HoldFile != "" {
		w.add(WhyHeld, "%s", f.HoldFile)
	}
	for _, h := range f.Held {
		w.add(WhyHeld, "%s", h)
	}
	for _, s := range f.Slots {
		w.add(WhySlot, "%s", s)
	}
	w.Reasons = append(w.Reasons, f.Rollout...)
	for _, category := range slices.Sorted(maps.Keys(f.Report.States)) {
		if s := f.Report.States[category]; s.State != StateSuccess {
			w.add(WhyState, "%s", stateText(category, s))
		}
	}
	switch {
	case len(w.Reasons) > 0:
	case !f.Reported:
		w.add(WhyUnknown, "it never reported anything")
	default:
		w.add(WhyUnknown, "nothing is known that keeps it: it may be under way")
	}
}

// condition lists what is wrong with the host itself. A host without a jorc agent
// is worth a reason only where it has to update.
func (w *Why) condition(h Host) {
	c := h.Condition
	switch c.Liveness {
	case LivenessDown:
		w.add(WhyHost, "the host is down: gossip does not reach it")
	case LivenessSuspect:
		w.add(WhyHost, "the host is suspect: gossip does not reach it, but the orchestrator does")
	case LivenessAbsent:
		w.add(WhyHost, "the host is not in Consul's catalog")
	case LivenessUp, LivenessUnmonitored:
	}
	switch {
	case c.Detached():
	case c.AgentCheck() == SignalFailing:
		w.add(WhyAgent, "its jorc agent is down: its check fails")
	case c.AgentCheck() != SignalPassing && w.Pending:
		w.add(WhyAgent, "no jorc agent is registered on it; scripts may do its work")
	}
	for _, check := range h.Failing {
		w.add(WhyCheck, "%s: %s is critical", cmp.Or(check.ServiceName, "host"), check.CheckID)
	}
	switch c.Maintenance {
	case MaintenanceOwn:
		w.add(WhyMaintenance, "jorc has put it into maintenance")
	case MaintenanceForeign:
		w.add(WhyMaintenance, "an operator or another program has put it into maintenance")
	case MaintenanceNone:
	}
}

// doubts lists what is not well with a node that runs the desired version.
func (w *Why) doubts(d Report) {
	for _, category := range slices.Sorted(maps.Keys(d.States)) {
		switch s := d.States[category]; {
		case s.State != StateSuccess:
			w.add(WhyState, "%s", stateText(category, s))
		case s.Suspect != "":
			w.add(WhyState, "%s is suspect: %s", category, s.Suspect)
		}
	}
}

// StateVerb returns what a category does in a state: succeeded, failed, is running.
func StateVerb(state string) string {
	switch state {
	case StateSuccess:
		return "succeeded"
	case StateFailed:
		return state
	}
	return "is " + state
}

// stateText is a state in words, on one line.
func stateText(category string, s CategoryState) string {
	text := category + " " + StateVerb(s.State)
	if !s.Since.IsZero() {
		text += " since " + s.Since.Format(time.RFC3339)
	}
	if s.Version != "" {
		text += " at " + s.Version
	}
	if s.Detail != "" {
		text += ": " + Brief(s.Detail)
	}
	if !s.NextTry.IsZero() {
		text += "; the next try is at " + s.NextTry.Format(time.RFC3339)
	}
	if s.LogURL != "" {
		text += " (" + s.LogURL + ")"
	}
	return text
}

func (w *Why) add(reason, format string, args ...any) {
	w.Reasons = append(w.Reasons, Reason{reason, fmt.Sprintf(format, args...)})
}
