package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/slots"
)

// ViewOf puts a view together of what was read. Members of o.Members are as
// they are; where Version and Status are empty they are filled in for the
// cluster's filter. A node document that cannot be read counts as none. It
// returns a *cluster.FilterError when the cluster's filter is none: then the
// members are those whom everybody would be.
func ViewOf(o cluster.Observation, documents map[string]kv.Leaf[nodes.Document], group slots.Group) (View, error) {
	filter, err := ownFilter(o)
	holders := map[string]time.Time{}
	for name, h := range group.Holders {
		if node, id, _ := strings.Cut(name, "/"); id == ClaimID {
			holders[node] = h.Since
		}
	}
	var v View
	for _, m := range o.Members {
		d := documents[m.Node].Value
		m.Version, m.Status = d.Version, map[string]string{}
		for category, s := range d.States {
			m.Status[category] = s.State
		}
		since, holds := holders[m.Node]
		delete(holders, m.Node)
		member := Member{
			Node: m.Node, Roles: m.Roles, Zone: m.Zone, Outside: !filter.Match(&m),
			Version: d.Version, Arrived: d.Since, Config: d.States[nodes.Config], Validation: d.States[nodes.Validation],
			Up: m.Condition.Agent == cluster.AgentUp, Sick: m.Condition.Health == consul.HealthCritical || m.Condition.Maintenance == cluster.MaintenanceForeign,
			Drained: m.Condition.Maintenance == cluster.MaintenanceOwn,
			Holds:   holds, HeldSince: since,
		}
		if h, held := o.Control.Held(m.Node, m.Roles); held {
			member.Hold = holdText(h)
		}
		v.Members = append(v.Members, member)
	}
	v.Strangers, v.Halted = slices.Sorted(maps.Keys(holders)), halted(o.Control)
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

// ownFilter is the cluster's own filter.
func ownFilter(o cluster.Observation) (*cluster.Filter, error) {
	text := ""
	if v, ok := o.Profile.Params[cluster.ParamFilter]; ok && !v.IsNull() {
		text = v.Raw()
	}
	filter, err := cluster.ParseFilter(text)
	if err == nil {
		return filter, nil
	}
	everybody, _ := cluster.ParseFilter("") // it matches every member
	return everybody, fmt.Errorf("param %s: %w", cluster.ParamFilter, err)
}
