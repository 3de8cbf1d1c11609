package cluster

import (
	"slices"
	"strconv"

	"github.com/jorc/jorc/internal/consul"
)

// needChecks are the needs that checks decide about.
const needChecks = NeedHealth | NeedAgent

// checksFor is the filter, in Consul's own language, for the checks that can
// make a difference: those that do not pass, and to know of an agent the one of
// jorc itself. Of large clusters that is far less than all.
func checksFor(need Need, presence string) string {
	filter := "Status != " + strconv.Quote(consul.HealthPassing)
	if need&NeedAgent != 0 {
		filter += " or ServiceID == " + strconv.Quote(presence)
	}
	return filter
}

// condition is what the checks of one node say.
type condition struct {
	worst       string // of all checks but maintenance; empty where there is no host
	maintenance bool
	foreign     bool // maintenance that somebody else set
	dead        bool // serfHealth does not pass
	present     bool // jorc's own check passes
}

// judge fills in Health and Agent as far as need says.
func (s sources) judge(all []Member, at map[string]int, presence string, need Need) {
	conditions := make([]condition, len(all))
	for _, n := range s.nodes {
		if i, ok := at[n.Node]; ok {
			conditions[i].worst = consul.HealthPassing
		}
	}
	count := func(checks []consul.CheckState) {
		for _, h := range checks {
			if i, ok := at[h.Node]; ok {
				conditions[i].add(h, presence)
			}
		}
	}
	count(s.checks)
	for _, n := range s.inventory {
		count(n.Checks)
	}
	for i, c := range conditions {
		all[i].take(c, need)
	}
}

// take takes over what checks say.
func (m *Member) take(c condition, need Need) {
	if need&NeedAgent != 0 {
		m.Agent = AgentDown
		if c.present && !c.dead {
			m.Agent = AgentUp
		}
	}
	if need&NeedHealth == 0 {
		return
	}
	m.Health = c.worst
	if c.maintenance && c.worst != consul.HealthCritical {
		m.Health = HealthMaintenance
		m.maintainedByJorc = !c.foreign
	}
}

func (c *condition) add(h consul.CheckState, presence string) {
	passing := h.Status == consul.HealthPassing
	switch {
	case consul.IsMaintenance(h.CheckID):
		c.maintenance = true
		c.foreign = c.foreign || !consul.IsJorcs(h.Notes)
		return
	case h.CheckID == "serfHealth":
		c.dead = !passing
	case h.ServiceID == presence:
		c.present = passing
	}
	c.worst = worse(c.worst, h.Status)
}

func worse(a, b string) string {
	order := []string{"", consul.HealthPassing, consul.HealthWarning, consul.HealthCritical}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}
