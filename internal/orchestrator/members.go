package orchestrator

import (
	"slices"

	"github.com/jorc/jorc/internal/cluster"
)

// memberList makes the list of a cluster's members, of which only what changed is rebuilt. It is for one goroutine.
type memberList struct {
	members []cluster.Member
	hosts   map[string]*cluster.Host
	at      map[string]int // places in members
}

// list returns the members as filters see them. What of their reports cannot be read is as it is in the view.
func (l *memberList) list(s *cluster.State, v View) []cluster.Member {
	names := s.Nodes()
	known := func(node string) bool {
		_, known := l.at[node]
		return known && l.hosts[node] == s.Hosts[node] && s.DamagedHost(node) == nil
	}
	if len(names) == len(l.members) && !slices.ContainsFunc(names, func(node string) bool { return !known(node) }) {
		return l.members
	}
	all := make([]cluster.Member, 0, len(names))
	at := make(map[string]int, len(names))
	for _, node := range names {
		if s.DamagedMember(node) != nil {
			continue
		}
		at[node] = len(all)
		if known(node) {
			all = append(all, l.members[l.at[node]])
			continue
		}
		m := s.MemberOf(node)
		if s.DamagedReport(node) != nil {
			n := v.Nodes[node]
			m.Version, m.Status = n.Version, map[string]string{}
			for category, state := range n.States {
				m.Status[category] = state.State
			}
		}
		all = append(all, m)
	}
	l.members, l.at, l.hosts = all, at, s.Hosts
	return all
}
