package cluster

import (
	"cmp"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// jorcNote begins the notes of maintenance that jorc itself set.
const jorcNote = "jorc:"

// condition is what the checks of one node say.
type condition struct {
	worst         string // of all checks but maintenance
	maintenance   bool
	foreign       bool // maintenance that somebody else set
	host, present bool // serfHealth, and jorc's own check, pass
}

// judge fills in Health and Agent.
func (s sources) judge(all []Member, at map[string]int, presence string) {
	conditions := make([]condition, len(all))
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
		m := &all[i]
		m.Agent, m.Health = AgentDown, c.worst
		if c.host && c.present {
			m.Agent = AgentUp
		}
		if c.maintenance && c.worst != consul.HealthCritical {
			m.Health = HealthMaintenance
			m.maintainedByJorc = !c.foreign
		}
	}
}

func (c *condition) add(h consul.CheckState, presence string) {
	passing := h.Status == consul.HealthPassing
	switch {
	case h.CheckID == "_node_maintenance", strings.HasPrefix(h.CheckID, "_service_maintenance:"):
		c.maintenance = true
		c.foreign = c.foreign || !strings.HasPrefix(h.Notes, jorcNote)
		return
	case h.CheckID == "serfHealth":
		c.host = passing
	case h.ServiceID == presence:
		c.present = passing
	}
	c.worst = cmp.Or(worse(c.worst, h.Status), consul.HealthPassing)
}

func worse(a, b string) string {
	order := []string{"", consul.HealthPassing, consul.HealthWarning, consul.HealthCritical}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}
