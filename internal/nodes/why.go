package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// Facts are what is known of why a node runs what it runs. What the ledger
// does not know is filled in by who asks.
type Facts struct {
	Node     string
	Desired  string
	Reported bool
	Document Document
	Life     Life
	Jorc     string // state of jorc's own check; empty: there is none

	HoldFile string   // of this host, when it is there
	Held     []string // what holds the node or its cluster, in words
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
	WhyHeld           = "held"
	WhyRollout        = "rollout" // it is not admitted by the rollout
	WhySlot           = "slot"    // of the rollout
	WhyState          = "state"   // failed, pending, running; of what arrived also suspect
	WhyUnknown        = "unknown"
)

// Facts reads what the ledger and the catalog know of node. It returns what
// Document and Desired return.
func (l *Ledger) Facts(ctx context.Context, node string) (Facts, error) {
	f := Facts{Node: node, Life: Gone}
	var checks consul.HealthChecks
	var known *consul.CatalogNode
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { f.Desired, err = l.Desired(ctx); return err })
	g.Go(func() (err error) { f.Document, f.Reported, err = l.Document(ctx, node); return err })
	g.Go(func() error { return l.maySeeNode(ctx, node) })
	g.Go(func() (err error) { known, err = whole(l.client.CatalogNode(ctx, node, consul.Query{})); return err })
	g.Go(func() (err error) { checks, err = whole(l.client.HealthNode(ctx, node, consul.Query{})); return err })
	if err := g.Wait(); err != nil {
		return f, err
	}
	if known != nil && known.Node != nil {
		f.Life = Unwatched
	}
	for _, c := range checks {
		switch {
		case c.CheckID == serfHealth && c.Status == consul.HealthPassing:
			f.Life = Alive
		case c.CheckID == serfHealth:
			f.Life = Dead
		case c.ServiceID == l.presence:
			f.Jorc = c.Status
		}
	}
	return f, nil
}

func (l *Ledger) maySeeNode(ctx context.Context, node string) error {
	return l.may(ctx, []consul.Right{{Resource: "node", Access: "read", Segment: node}, {Resource: "service", Access: "read", Segment: "jorc"}})
}

// Explain tells why the node of f runs what it runs.
func Explain(f Facts) Why {
	w := Why{Host: f.Node, Desired: f.Desired, Version: f.Document.Version, Reasons: []Reason{}}
	w.Pending = f.Desired != "" && f.Desired != w.Version
	switch {
	case f.Desired == "":
		w.add(WhyNothingDesired, "no version was triggered")
	case !w.Pending && f.Document.Since.IsZero():
		w.add(WhyArrived, "it runs %s", f.Desired)
		w.doubts(f.Document)
	case !w.Pending:
		w.add(WhyArrived, "it runs %s since %s", f.Desired, f.Document.Since.Format(time.RFC3339))
		w.doubts(f.Document)
	default:
		w.explain(f)
	}
	return w
}

// explain lists what keeps the node.
func (w *Why) explain(f Facts) {
	switch f.Life {
	case Dead:
		w.add(WhyHost, "the host is dead: gossip does not hear it")
	case Gone:
		w.add(WhyHost, "the host is not in Consul's catalog")
	case Alive, Unwatched:
	}
	switch {
	case f.Life.Apart():
	case f.Jorc == "":
		w.add(WhyAgent, "no jorc agent is registered on it; scripts may do its work")
	case f.Jorc != consul.HealthPassing:
		w.add(WhyAgent, "its jorc agent is %s: it died or was stopped", f.Jorc)
	}
	if f.HoldFile != "" {
		w.add(WhyHeld, "the file %s is there", f.HoldFile)
	}
	for _, h := range f.Held {
		w.add(WhyHeld, "%s", h)
	}
	w.Reasons = append(w.Reasons, f.Rollout...)
	for _, category := range slices.Sorted(maps.Keys(f.Document.States)) {
		if s := f.Document.States[category]; s.State != Success {
			w.add(WhyState, "%s", told(category, s))
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

// doubts lists what is not well with a node that runs the desired version.
func (w *Why) doubts(d Document) {
	for _, category := range slices.Sorted(maps.Keys(d.States)) {
		switch s := d.States[category]; {
		case s.State != Success:
			w.add(WhyState, "%s", told(category, s))
		case s.Suspect != "":
			w.add(WhyState, "%s is suspect: %s", category, s.Suspect)
		}
	}
}

// told is a state in words, on one line.
func told(category string, s State) string {
	text := fmt.Sprintf("%s is %s", category, s.State)
	if !s.Since.IsZero() {
		text += " since " + s.Since.Format(time.RFC3339)
	}
	if s.Version != "" {
		text += " at " + s.Version
	}
	if s.Detail != "" {
		text += ": " + Brief(s.Detail)
	}
	if s.LogURL != "" {
		text += " (" + s.LogURL + ")"
	}
	return text
}

func (w *Why) add(reason, format string, args ...any) {
	w.Reasons = append(w.Reasons, Reason{reason, fmt.Sprintf(format, args...)})
}
