package orchestrator

import (
	"slices"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/view"
)

// inventory fills in services and lives of nodes, and returns those that gossip
// does not hear.
func inventory(v view.View, all []consul.NodeInfo, before view.View, presence string) (sick []patient) {
	for i := range all {
		info := &all[i]
		n, ok := v.Nodes[info.Node]
		if !ok {
			continue
		}
		whole := consul.HealthPassing
		at := map[string]string{} // service id → its worst check
		for _, c := range info.Checks {
			status := c.Status
			switch {
			case c.CheckID == "serfHealth":
				n.Life = view.Up
				if status == consul.HealthCritical {
					n.Life = view.Down
					sick = append(sick, patient{info.Node, n.Address, before.Nodes[info.Node].Life})
				}
			case consul.IsMaintenance(c.CheckID):
				status = consul.HealthMaint
			}
			if c.ServiceID == "" {
				whole = worst(whole, status)
			} else {
				at[c.ServiceID] = worst(at[c.ServiceID], status)
			}
		}
		for _, s := range info.Services {
			if s.ID == presence {
				continue
			}
			if n.Services == nil {
				n.Services = map[string]view.Tally{}
			}
			n.Services[s.Service] = counted(n.Services[s.Service], worst(whole, at[s.ID]))
		}
		v.Nodes[info.Node] = n
	}
	return sick
}

// worst is the one of two states of checks that counts: maintenance says more
// than that checks fail meanwhile.
func worst(a, b string) string {
	order := []string{"", consul.HealthPassing, consul.HealthWarning, consul.HealthCritical, consul.HealthMaint}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

func counted(t view.Tally, status string) view.Tally {
	switch status {
	case consul.HealthMaint:
		t.Maintenance++
	case consul.HealthCritical:
		t.Critical++
	case consul.HealthWarning:
		t.Warning++
	default:
		t.Passing++
	}
	return t
}
