package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
)

// Why reads what the rollout says to node, see Explain. It returns what Show
// returns.
func (r *Rollouts) Why(ctx context.Context, node string) ([]cluster.Reason, error) {
	s, err := r.Load(ctx)
	if err != nil {
		return nil, err
	}
	state, orchestrated := State{}, true
	if s.Current() && s.Document.Paced() {
		if state, err = r.Observe(ctx, s); err != nil {
			return nil, err
		}
		if orchestrated, err = r.Orchestrated(ctx); err != nil {
			return nil, err
		}
	}
	return r.WhyOf(s, state, orchestrated, node), nil
}

// WhyOf is Why of what was read before; orchestrated says whether the cluster has an
// orchestrator.
func (r *Rollouts) WhyOf(s Stored, state State, orchestrated bool, node string) []cluster.Reason {
	switch {
	case s.Damaged != nil:
		return []cluster.Reason{{Reason: cluster.WhyRollout, Detail: s.usable(r).Error()}}
	case !s.Current():
		return nil
	}
	now := r.now()
	reasons := Explain(s.Document, state, node, now)
	if _, ok := s.Budgeted(now); ok {
		why := "the cluster has a budget"
		if frozen, is := s.Control.Freezes.Any(now); is {
			why = "the cluster is " + frozen.String()
		}
		reasons = append(reasons, cluster.Reason{Reason: cluster.WhyRollout, Detail: why + ": the orchestrator paces the rollout, and has not done so yet"})
	}
	if s.Document.Paced() && !orchestrated {
		reasons = append(reasons, cluster.Reason{Reason: cluster.WhyRollout, Detail: "no orchestrator runs: no host is offered a grant"})
	}
	return reasons
}

// Explain says why the rollout does not offer node a grant, or what it did with
// it: nothing when the node may begin. It is a pure function, made of what Plan
// is made of.
func Explain(d Document, s State, node string, now time.Time) []cluster.Reason {
	p := newPlanner(d, s, now)
	reason := func(kind, detail string) []cluster.Reason { return []cluster.Reason{{Reason: kind, Detail: detail}} }
	if !d.Paced() {
		switch {
		case d.Phase == pace.Aborted:
			return reason(cluster.WhyStopped, "the rollout was aborted")
		case d.State() == Paused:
			return reason(cluster.WhyStopped, d.Stopped.text())
		}
		return nil
	}
	i := slices.IndexFunc(append(slices.Clone(p.members), p.others...), func(m ranked) bool { return m.Node == node })
	if i < 0 {
		if j := slices.IndexFunc(s.Members, func(m Member) bool { return m.Node == node }); j >= 0 {
			return reason(cluster.WhyRollout, s.Members[j].apart(d.Policy))
		}
		return reason(cluster.WhyRollout, "it is not a member of the cluster: 'jorc cluster join' makes it one")
	}
	m := append(slices.Clone(p.members), p.others...)[i]
	if text := p.grantText(m); text != "" {
		return reason(cluster.WhyGrant, text)
	}
	text := p.Outlook().Why(m.in).Text(p.Words.Noun)
	switch {
	case text == "":
		return nil
	case d.Phase == pace.Aborted, d.State() == Paused:
		return reason(cluster.WhyStopped, text)
	}
	return reason(cluster.WhyRollout, text)
}

// grantText says what a member does with its grant; empty: it has none.
func (p *planner) grantText(m ranked) string {
	g := m.describeGrant()
	since := g.Since.UTC().Format(time.RFC3339)
	switch {
	case m.givenUp():
		return "an operator gave up on it at " + since + parenthesised(g.Reason) + ": it continues without counting"
	case m.offered():
		return "it is offered a grant since " + since + " and has not answered yet"
	case !m.granted():
		return ""
	case m.in.State == pace.Failed:
		return "it has its grant since " + since + ", stays out of service and tries again by itself until it succeeds: " + shorten(p.failure(m))
	case !m.stranded() && m.Version == p.doc.Version:
		return fmt.Sprintf("it has its grant since %s: it counts as out of service until all its checks have passed for %v (--min-healthy)", since, p.doc.Policy.MinHealthy)
	case !m.stranded() && m.aside() != "":
		return "it has a grant of " + g.Version + " since " + since + " and finishes it later: " + m.aside()
	case !m.stranded():
		return "it has a grant of " + g.Version + " since " + since + " and is at work"
	}
	text := "it is out of service since " + since + " for " + g.Version + ", and waits for a grant of " + p.doc.Version
	if why := p.Outlook().Why(m.in).Text(p.Words.Noun); why != "" {
		text += ": " + why
	}
	return text
}

func parenthesised(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
