package stage

import (
	"github.com/jorc/jorc/internal/cluster"
)

// HostsOf returns the hosts of each stage of a cluster. Only members have turns.
func HostsOf(s *cluster.State) map[string][]Host {
	all := map[string][]Host{}
	for _, node := range s.Nodes() {
		h := s.Hosts[node]
		for name, report := range h.Report.Stages {
			all[name] = append(all[name], hostOf(s, h, report))
		}
	}
	return all
}

func hostOf(s *cluster.State, h *cluster.Host, report cluster.StageReport) Host {
	one := Host{
		Node: h.Node, Zone: h.Record.Zone, Up: h.Condition.Agent == cluster.AgentUp,
		Out: h.Condition.OutOfService(false) != cluster.InService, Hold: h.Report.HeldByFile(), Report: report,
		Critical: h.Condition.OutOfService(false) == cluster.OutCritical,
	}
	return one
}

// WithReports returns hosts with the reports of the hosts with an open turn, which
// were read after the documents. A host that reports the stage only there is added.
func WithReports(hosts []Host, s *cluster.State, name string, reports map[string]cluster.Report, d Documents) []Host {
	next := make([]Host, 0, len(hosts))
	known := map[string]bool{}
	for _, h := range hosts {
		known[h.Node] = true
		if _, open := d.Turns.Open[h.Node]; open {
			report, has := reports[h.Node].Stages[name]
			if !has {
				continue // it no longer has the stage
			}
			h.Report = report
		}
		next = append(next, h)
	}
	for node, r := range reports {
		if report, has := r.Stages[name]; has && !known[node] {
			h := s.Hosts[node]
			if h == nil {
				h = &cluster.Host{Node: node}
			}
			next = append(next, hostOf(s, h, report))
		}
	}
	return next
}
