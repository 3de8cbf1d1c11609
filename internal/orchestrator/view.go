package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/text"
)

// View is a cluster as it was observed at one moment. The zero View is that of
// a cluster which does not exist. Its maps and slices belong to it.
type View struct {
	Cluster ClusterView         `json:"cluster"`
	Nodes   map[string]NodeView `json:"nodes"` // the members, by name
}

// ClusterView is what a view says of the cluster as a whole.
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

// NodeView is what a view says of one member. It holds no output of checks nor any
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
	States     map[string]StateView     `json:"states,omitempty"`    // by category
	Services   map[string]cluster.Tally `json:"services,omitempty"`  // by name
	HoldFile   string                   `json:"hold_file,omitempty"` // what the file on the host says that holds it
	Trouble    string                   `json:"trouble,omitempty"`   // why what it reports could not be read: it is as it was before

	// LifeSince and HealthSince are when an orchestrator saw Life and Health as
	// they are for the first time. Alone they make no difference.
	LifeSince   time.Time `json:"life_since,omitzero"`
	HealthSince time.Time `json:"health_since,omitzero"`
}

// StateView is a node's state in one category.
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

// Aggregate is what a view adds up to.
type Aggregate struct {
	Nodes    int            `json:"nodes"`
	Life     map[string]int `json:"life"` // up, suspect, down; none: without a host
	Agents   map[string]int `json:"agents"`
	Health   map[string]int `json:"health"`
	Versions map[string]int `json:"versions"`
	Roles    map[string]int `json:"roles"`
	Zones    map[string]int `json:"zones"`
	Trouble  int            `json:"trouble"` // nodes of which something could not be read
}

// AggregateNone is the word under which an Aggregate counts what is missing.
const AggregateNone = "none"

// Aggregate counts the members of v. The maps are never nil.
func (v View) Aggregate() Aggregate {
	a := Aggregate{
		Nodes: len(v.Nodes), Life: map[string]int{}, Agents: map[string]int{}, Health: map[string]int{},
		Versions: map[string]int{}, Roles: map[string]int{}, Zones: map[string]int{},
	}
	for _, n := range v.Nodes {
		a.Life[orNone(string(n.Life))]++
		a.Agents[orNone(n.Agent)]++
		a.Health[orNone(n.Health)]++
		a.Versions[orNone(n.Version)]++
		a.Zones[orNone(n.Zone)]++
		for _, r := range n.Roles {
			a.Roles[r]++
		}
		if n.Trouble != "" {
			a.Trouble++
		}
	}
	return a
}

// few joins at most n names.
func few(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func union[A, B any](a map[string]A, b map[string]B) map[string]struct{} {
	all := make(map[string]struct{}, len(a))
	for name := range a {
		all[name] = struct{}{}
	}
	for name := range b {
		all[name] = struct{}{}
	}
	return all
}

// Bounds of what one node adds to a view, in bytes.
const (
	maxWord     = 256 // an address, a zone, a role, …
	maxTrouble  = 500
	maxServices = 24 << 10 // of the names of its services, and what is counted of each
	perService  = 48       // what is counted
)

// Bounded returns n with what a view has room for. What is left out, or
// cut, is trouble of the node.
func (n NodeView) Bounded() NodeView {
	cut := 0
	word := func(s string) string {
		short := text.Truncate(s, maxWord)
		if short != s {
			cut++
		}
		return short
	}
	n.Address, n.Datacenter, n.Zone, n.Version = word(n.Address), word(n.Datacenter), word(n.Zone), word(n.Version)
	left, size := len(n.Services), 0
	kept := make(map[string]cluster.Tally, len(n.Services))
	for _, name := range slices.Sorted(maps.Keys(n.Services)) {
		if size += len(name) + perService; size <= maxServices && len(name) <= maxWord {
			kept[name] = n.Services[name]
			left--
		}
	}
	if left > 0 {
		n.troubled(fmt.Sprintf("%d of its %d services are left out: their names take more than %d KB, or one more than %d bytes: deregister services that it does not need",
			left, len(n.Services), maxServices>>10, maxWord))
		n.Services = kept
	}
	if cut > 0 {
		n.troubled(fmt.Sprintf("%d of its names are cut after %d bytes", cut, maxWord))
	}
	n.Trouble = text.Truncate(n.Trouble, maxTrouble)
	return n
}

func (n *NodeView) troubled(why string) {
	n.Trouble = strings.TrimPrefix(n.Trouble+"; "+why, "; ")
}
