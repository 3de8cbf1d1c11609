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

// equal reports whether n and o are the same, the times included.
func (n NodeView) equal(o NodeView) bool {
	return n.Address == o.Address && n.Datacenter == o.Datacenter && n.Zone == o.Zone && slices.Equal(n.Roles, o.Roles) &&
		n.Params == o.Params && n.Meta == o.Meta && n.Needs == o.Needs && n.Life == o.Life && n.Agent == o.Agent && n.Health == o.Health &&
		n.Version == o.Version && maps.Equal(n.States, o.States) && maps.Equal(n.Services, o.Services) && n.HoldFile == o.HoldFile && n.Lease == o.Lease &&
		n.Trouble == o.Trouble && n.LifeSince.Equal(o.LifeSince) && n.HealthSince.Equal(o.HealthSince)
}
