package cluster

import (
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/consul"
)

// Without returns the state for a reader who may not see some hosts and services, as if
// they did not exist. The health of a host that runs one of the services is left out, too:
// it follows from the checks of all of its services. Changes are left out.
func (s *State) Without(hosts, services map[string]bool) *State {
	next := *s
	next.nodes, next.Changes = nil, AuditLog{}
	next.Hosts = make(map[string]*Host, len(s.Hosts))
	for node, h := range s.Hosts {
		if !hosts[node] {
			next.Hosts[node] = h.without(services)
		}
	}
	next.Leaders.Leader = namesWithout(s.Leaders.Leader, hosts)
	next.Leaders.Manager = namesWithout(s.Leaders.Manager, hosts)
	next.Leaders.Retired = slices.DeleteFunc(slices.Clone(s.Leaders.Retired), func(r Retired) bool { return hosts[r.Node] })
	next.Control.Nodes = maps.Clone(s.Control.Nodes)
	maps.DeleteFunc(next.Control.Nodes, func(node string, _ Hold) bool { return hosts[node] })
	next.Damaged = maps.Clone(s.Damaged)
	maps.DeleteFunc(next.Damaged, func(key string, _ error) bool {
		node, ok := NodeOf(key)
		return ok && hosts[node]
	})
	return &next
}

// without is the host without some services.
func (h *Host) without(services map[string]bool) *Host {
	next := *h
	for name := range h.Services {
		if services[name] {
			next.Condition = next.Condition.withoutHealth()
		}
	}
	next.Services = maps.Clone(h.Services)
	maps.DeleteFunc(next.Services, func(name string, _ Tally) bool { return services[name] })
	next.Failing = slices.DeleteFunc(slices.Clone(h.Failing), func(c consul.CheckState) bool { return services[c.ServiceName] })
	next.Record.Provides = namesWithout(h.Record.Provides, services)
	next.Record.Requires = slices.DeleteFunc(slices.Clone(h.Record.Requires), func(r Requirement) bool { return services[r.Service()] })
	return &next
}

func namesWithout(names []string, hidden map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return hidden[name] })
}
