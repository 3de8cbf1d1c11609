package rollout

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/slots"
)

// ViewOf is the state as a rollout sees it; a report that cannot be read counts
// as none. It returns a *cluster.FilterError when the cluster's filter is none:
// then every member takes part.
func ViewOf(s *cluster.State, group slots.Group) (View, error) {
	filter, err := s.Filter()
	if err != nil {
		filter, _ = cluster.ParseFilter("") // it matches every member
	}
	holders := map[string]time.Time{}
	for name, h := range group.Holders {
		if node, id, _ := strings.Cut(name, "/"); id == ClaimID {
			holders[node] = h.Since
		}
	}
	var v View
	for _, m := range s.Members(nil) {
		d, c := s.Hosts[m.Node].Report, m.Condition
		since, holds := holders[m.Node]
		delete(holders, m.Node)
		member := Member{
			Node: m.Node, Roles: m.Roles, Zone: m.Zone, Outside: !filter.Match(&m),
			Version: d.Version, Arrived: d.Since, Config: d.States[cluster.CategoryConfig], Validation: d.States[cluster.CategoryValidation],
			Up: c.Agent == cluster.AgentUp, Sick: c.Health == consul.HealthCritical || c.Maintenance == cluster.MaintenanceForeign,
			Drained: c.Maintenance == cluster.MaintenanceOwn,
			Holds:   holds, HeldSince: since,
		}
		if h, held := s.Control.Held(m.Node, m.Roles); held {
			member.Hold = holdText(h)
		}
		v.Members = append(v.Members, member)
	}
	v.Strangers, v.Halted = slices.Sorted(maps.Keys(holders)), halted(s.Control)
	return v, err
}

// halted says what halts the whole cluster, and what ends that.
func halted(c cluster.Control) string {
	say := func(command, what string, h cluster.Hold) string {
		if why := holdText(h); why != "" {
			what += ": " + shorten(why)
		}
		return command + ": " + what
	}
	switch {
	case c.Paused != nil:
		return say("'jorc cluster resume'", "the cluster is paused", *c.Paused)
	case c.ObserveOnly != nil:
		return say("'jorc cluster observe-only off'", "the orchestrator admits nobody meanwhile", *c.ObserveOnly)
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
