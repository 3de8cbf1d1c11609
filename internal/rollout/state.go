package rollout

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
)

// Observe reads what is known of all members, as no server that lost its
// leadership can answer, with requests whose number does not grow with theirs. It
// returns what cluster.Load returns, and a *cluster.FilterError.
func (r *Rollouts) Observe(ctx context.Context, stored Stored) (State, error) {
	s, err := r.cluster.Consistent().Load(ctx, cluster.NeedState)
	if err != nil {
		return State{}, err
	}
	return StateOf(&s, stored)
}

// StateOf is the cluster as a rollout sees it. A report or a grant that cannot be
// read counts as absent. It returns why the profile cannot be read, and a
// *cluster.FilterError for an invalid filter: then no member is left out by it.
func StateOf(s *cluster.State, stored Stored) (State, error) {
	if err := s.Damaged[cluster.KeyProfile]; err != nil {
		return State{}, err
	}
	filter, err := s.Filter()
	if err != nil {
		filter, _ = cluster.ParseFilter("") // it matches every member
	}
	state := State{Halted: halted(s.Control), Quiet: stored.Ledger.Quiet}
	for _, m := range s.Members(nil) {
		host := s.Hosts[m.Node]
		one := Member{
			Node: m.Node, Roles: m.Roles, Zone: m.Zone, Outside: !filter.Match(&m), Condition: m.Condition,
			Version: host.Report.Version, Arrived: host.Report.Since, Answer: host.Report.Grant, Grant: grantOf(host.Grant),
			Config: host.Report.States[cluster.CategoryConfig], Validation: host.Report.States[cluster.CategoryValidation],
		}
		one.Void = stored.void(one.Grant)
		if h, held := s.Control.Held(m.Node, m.Roles); held {
			one.Hold = holdText(h)
		}
		state.Members = append(state.Members, one)
	}
	for node, host := range s.Hosts {
		if m := (Member{Grant: grantOf(host.Grant), Answer: host.Report.Grant, Void: true}); !host.Member && m.granted() {
			state.Strangers = append(state.Strangers, node)
		}
	}
	slices.Sort(state.Strangers)
	return state, err
}

// grantOf decodes a grant. One that is damaged is as one that was never offered.
func grantOf(e kv.Entry[string]) (g Grant) {
	if e.Exists && json.Unmarshal([]byte(e.Value), &g) != nil {
		g = Grant{}
	}
	g.index = e.Index
	return g
}

// void reports whether an offer of g cannot be accepted any more.
func (s Stored) void(g Grant) bool {
	return g.State != Offered || g.Rollout != s.doc.Index || g.Version != s.Desired || s.Session != "" && g.Session != s.Session
}

// halted says what halts the whole cluster, and what ends that.
func halted(c cluster.Control) string {
	text := func(command, what string, h cluster.Hold) string {
		if why := holdText(h); why != "" {
			what += ": " + shorten(why)
		}
		return command + ": " + what
	}
	switch {
	case c.Paused != nil:
		return text("'jorc cluster resume'", "the cluster is paused", *c.Paused)
	case c.ObserveOnly != nil:
		return text("'jorc cluster observe-only off'", "the orchestrator only observes", *c.ObserveOnly)
	}
	return ""
}

// holdText is what holds a member, in words.
func holdText(h cluster.Hold) string {
	by := "by " + h.By
	if h.By == "" {
		by = ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(by+": "+h.Reason, ": "), ": ")
}
