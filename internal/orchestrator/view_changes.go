package orchestrator

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// views makes the view of each cycle from what differs from the cycle before: a
// member whose host is the same in both states has the same view. It is for one
// goroutine.
type views struct {
	state     cluster.State       // of the last cycle; Hosts is nil before the first
	base      map[string]NodeView // the members that its view was compared with
	view      View
	aggregate Aggregate // of view

	members []cluster.Member // of the cluster
	hosts   map[string]*cluster.Host
	at      map[string]int // places in members
}

// next returns the view of s with the times since when members are as they are, and
// the names of the members that may differ from before, in order. What cannot be
// read is as it was in before.
func (w *views) next(s *cluster.State, before View, now time.Time) (View, []string) {
	reuse := w.state.Hosts != nil && s.Damaged[cluster.KeyLeaders] == nil && w.state.Damaged[cluster.KeyLeaders] == nil &&
		(sameMap(before.Nodes, w.view.Nodes) || sameMap(before.Nodes, w.base))
	names := s.Nodes()
	var changed []string
	for _, node := range names {
		n, known := w.view.Nodes[node]
		if !reuse || !known || w.state.Hosts[node] != s.Hosts[node] || n.Trouble != "" || s.Hosts[node].Address == "" || s.DamagedHost(node) != nil {
			changed = append(changed, node)
		}
	}
	anew := changed
	for node := range before.Nodes {
		if h := s.Hosts[node]; h == nil || !h.Member {
			changed = append(changed, node)
		}
	}
	v := View{Cluster: clusterView(s, before.Cluster, now), Nodes: w.view.Nodes}
	if len(changed) > 0 || !reuse {
		v.Nodes = make(map[string]NodeView, len(names))
		if len(anew) < len(names) {
			for _, node := range names {
				v.Nodes[node] = w.view.Nodes[node]
			}
		}
		fresh := View{Nodes: make(map[string]NodeView, len(anew))}
		for _, node := range anew {
			was, known := before.Nodes[node]
			fresh.Nodes[node] = nodeView(s, node, was, known)
		}
		fresh.Since(before, now)
		maps.Copy(v.Nodes, fresh.Nodes)
		w.aggregate = v.Aggregate()
	}
	slices.Sort(changed)
	w.state, w.base, w.view = *s, before.Nodes, v
	return v, changed
}

// sameMap reports whether a and b are one map.
func sameMap(a, b map[string]NodeView) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// memberList returns the members as filters see them. What of their reports cannot
// be read is as it is in the view.
func (w *views) memberList(s *cluster.State, v View) []cluster.Member {
	names := s.Nodes()
	known := func(node string) bool {
		_, known := w.at[node]
		return known && w.hosts[node] == s.Hosts[node] && s.DamagedHost(node) == nil
	}
	if len(names) == len(w.members) && !slices.ContainsFunc(names, func(node string) bool { return !known(node) }) {
		return w.members
	}
	all := make([]cluster.Member, 0, len(names))
	at := make(map[string]int, len(names))
	for _, node := range names {
		if s.DamagedMember(node) != nil {
			continue
		}
		at[node] = len(all)
		if known(node) {
			all = append(all, w.members[w.at[node]])
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
	w.members, w.at, w.hosts = all, at, s.Hosts
	return all
}

// equal reports whether n and o are the same, the times included.
func (n NodeView) equal(o NodeView) bool {
	return n.Address == o.Address && n.Datacenter == o.Datacenter && n.Zone == o.Zone && slices.Equal(n.Roles, o.Roles) &&
		n.Params == o.Params && n.Meta == o.Meta && n.Needs == o.Needs && n.Life == o.Life && n.Agent == o.Agent && n.Health == o.Health &&
		n.Version == o.Version && maps.Equal(n.States, o.States) && maps.Equal(n.Services, o.Services) && n.HoldFile == o.HoldFile && n.Lease == o.Lease &&
		n.Trouble == o.Trouble && n.LifeSince.Equal(o.LifeSince) && n.HealthSince.Equal(o.HealthSince)
}
