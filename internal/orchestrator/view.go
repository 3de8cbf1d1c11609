package orchestrator

import (
	"maps"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
)

// View is a cluster as it was observed at one moment. The zero View is that of
// a cluster which does not exist. Its maps and slices belong to it.
type View struct {
	Cluster ClusterView         `json:"cluster"`
	Nodes   map[string]NodeView `json:"nodes"` // the members, by name
}

// Cluster is what a view says of the cluster as a whole.
type ClusterView struct {
	Exists      bool     `json:"exists"`  // it has a profile
	Profile     string   `json:"profile"` // digest of the profile's text
	Desired     string   `json:"desired"` // the desired version; empty: none
	Leaders     []string `json:"leaders"`
	Managers    []string `json:"managers"`
	LeaderCount int      `json:"leader_count"` // how many are to lead
	Paused      string   `json:"paused"`       // why it is paused; empty: it is not
	ObserveOnly string   `json:"observe_only"` // why the orchestrator only observes; empty: it decides
	Holds       []string `json:"holds"`        // what is held, and why
	// Trouble names the documents that could not be read, and why: what they say
	// is as it was before.
	Trouble map[string]string `json:"trouble"`
}

// Node is what a view says of one member. It holds no output of checks nor any
// other text that changes all the time.
type NodeView struct {
	Address    string                   `json:"address,omitempty"`
	Datacenter string                   `json:"datacenter,omitempty"`
	Zone       string                   `json:"zone,omitempty"`
	Roles      []string                 `json:"roles,omitempty"`  // derived ones last
	Params     string                   `json:"params,omitempty"` // digest of its own params
	Meta       string                   `json:"meta,omitempty"`   // digest
	Needs      string                   `json:"needs,omitempty"`  // digest of what it provides and requires
	Life       cluster.Liveness         `json:"life,omitempty"`   // up, suspect, down; empty: no host in the catalog
	Agent      string                   `json:"agent,omitempty"`  // jorc's own: up, down
	Health     string                   `json:"health,omitempty"` // passing, warning, critical, maintenance; empty without a host
	Version    string                   `json:"version,omitempty"`
	States     map[string]StateView     `json:"states,omitempty"`   // by category
	Services   map[string]cluster.Tally `json:"services,omitempty"` // by name
	Trouble    string                   `json:"trouble,omitempty"`  // why what it reports could not be read: it is as it was before

	// LifeSince and HealthSince are when an orchestrator saw Life and Health as
	// they are for the first time. They are no difference by themselves.
	LifeSince   time.Time `json:"life_since,omitzero"`
	HealthSince time.Time `json:"health_since,omitzero"`
}

// State is a node's state in one category.
type StateView struct {
	State   string `json:"state"`
	Version string `json:"version,omitempty"` // that it is about
	Suspect string `json:"suspect,omitempty"` // why success is doubtful
}

func (s StateView) String() string {
	if s.Suspect != "" {
		sure := s
		sure.Suspect = ""
		return sure.String() + ", suspect: " + s.Suspect
	}
	if s.Version == "" {
		return s.State
	}
	return s.State + " at " + s.Version
}

// Names returns the members' names in order.
func (v View) Names() []string { return slices.Sorted(maps.Keys(v.Nodes)) }

// Services adds up the services of all members, by name.
func (v View) Services() map[string]cluster.Tally {
	all := map[string]cluster.Tally{}
	for _, n := range v.Nodes {
		for name, t := range n.Services {
			all[name] = all[name].Plus(t)
		}
	}
	return all
}

// Since carries the times of old over to v, and sets those of what is new to
// now, in whole seconds.
func (v View) Since(old View, now time.Time) {
	now = now.UTC().Truncate(time.Second)
	for name, n := range v.Nodes {
		before, known := old.Nodes[name]
		n.LifeSince, n.HealthSince = now, now
		if known && before.Life == n.Life {
			n.LifeSince = before.LifeSince
		}
		if known && before.Health == n.Health {
			n.HealthSince = before.HealthSince
		}
		v.Nodes[name] = n
	}
}
