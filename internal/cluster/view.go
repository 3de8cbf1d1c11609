package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/profile"
)

// Need says what of a member has to be read beside its record and who leads.
type Need uint

// Each is one request, whatever the number of members; the datacenter comes
// with the catalog, Health needs the catalog, too, and Agent comes with Health.
const (
	NeedCatalog    Need = 1 << iota // Address, NodeMeta
	NeedDatacenter                  // Datacenter
	NeedHealth                      // Health
	NeedAgent                       // Agent
	NeedServices                    // Services
	NeedReports                     // Version, Status

	NeedAll = NeedCatalog | NeedDatacenter | NeedHealth | NeedAgent | NeedServices | NeedReports
)

// Member is one member as commands and filters show it.
type Member struct {
	Node       string            `json:"node"`
	Address    string            `json:"address"`
	Datacenter string            `json:"datacenter"`
	Zone       string            `json:"zone"`
	Roles      []string          `json:"roles"`  // derived ones last
	Params     profile.Params    `json:"params"` // its own; each role R shows as cluster/R = true
	Meta       profile.Params    `json:"meta"`
	NodeMeta   map[string]string `json:"node_meta"`
	Services   []string          `json:"services"`
	Version    string            `json:"version"`
	Status     map[string]string `json:"status"` // category → state
	Health     string            `json:"health"` // passing, warning, critical, maintenance; empty without a host
	Agent      string            `json:"agent"`  // up, down

	Provides []string      `json:"-"`
	Requires []Requirement `json:"-"`

	Condition  Condition `json:"-"` // with NeedHealth and NeedAgent
	unreadable error     // why the record cannot be read; it counts as empty
}

// MembersOptions say which members to read and what of them.
type MembersOptions struct {
	Filter *Filter // nil: all
	Need   Need    // beside what the filter needs
	// Unreadable, if not nil, is told of documents that cannot be read, by key
	// below the cluster's: members whose records cannot be are left out then, who
	// leads counts as nobody, and what nodes report as nothing; that is no error.
	Unreadable func(key string, err error)
}

// Members reads the members that o.Filter matches, in order of their names,
// with at most six requests whatever their number. It returns kv.ErrDamaged or
// kv.ErrNewer for a document that cannot be read, if o.Unreadable is nil, or a
// class of package consul; consul.ErrDenied also when the token does not see
// everything that was asked for.
func (c *Cluster) Members(ctx context.Context, o MembersOptions) ([]Member, error) {
	need := o.Need
	if o.Filter != nil {
		need |= o.Filter.need
	}
	s, err := c.read(ctx, need)
	if err == nil {
		err = s.tell(o.Unreadable)
	}
	if err != nil {
		return nil, err
	}
	all := s.members(catalog.PresenceID(c.name), need)
	return slices.DeleteFunc(all, func(m Member) bool {
		return m.unreadable != nil || o.Filter != nil && !o.Filter.Match(&m)
	}), nil
}

// members puts the answers together.
func (s sources) members(presence string, need Need) []Member {
	all := make([]Member, 0, len(s.records))
	at := make(map[string]int, len(s.records))
	for _, node := range slices.Sorted(maps.Keys(s.records)) {
		leaf := s.records[node]
		if leaf.Err != nil {
			leaf.Value = Record{}
		}
		m := newMember(node, leaf.Value, s.leaders)
		m.unreadable = leaf.Err
		at[node] = len(all)
		all = append(all, m)
	}
	for _, n := range s.nodes {
		if i, ok := at[n.Node]; ok {
			m := &all[i]
			m.Address, m.Datacenter = n.Address, n.Datacenter
			if n.Meta != nil {
				m.NodeMeta = n.Meta
			}
		}
	}
	for _, n := range s.inventory {
		if i, ok := at[n.Node]; ok {
			m := &all[i]
			m.Address = cmp.Or(n.Address, m.Address)
			if n.Meta != nil {
				m.NodeMeta = n.Meta
			}
			for _, service := range n.Services {
				m.Services = append(m.Services, service.Service)
			}
		}
	}
	for _, service := range s.services {
		for _, node := range service.Nodes {
			if i, ok := at[node]; ok {
				all[i].Services = append(all[i].Services, service.Service)
			}
		}
	}
	for i := range all {
		slices.Sort(all[i].Services)
		all[i].Services = slices.Compact(all[i].Services)
	}
	for node, leaf := range s.reports {
		if i, ok := at[node]; ok && leaf.Err == nil {
			all[i].Version, all[i].Status = leaf.Value.Version, leaf.Value.states()
		}
	}
	if need&needChecks != 0 {
		s.assess(all, at, presence, need)
	}
	return all
}

func newMember(node string, r Record, l Leaders) Member {
	roles := l.rolesOf(node, r.Roles)
	m := Member{
		Node: node, Zone: r.Zone, Roles: roles, Params: derive(r.Params, roles),
		Meta: r.Meta, NodeMeta: map[string]string{}, Services: []string{}, Status: map[string]string{},
		Provides: r.Provides, Requires: r.Requires,
	}
	if m.Meta == nil {
		m.Meta = profile.Params{}
	}
	return m
}

// report is what of nodes/<node> members show.
type report struct {
	Version string                     `json:"version"`
	States  map[string]json.RawMessage `json:"states"`
}

// states reads a state that stands alone or as the member "state" of an object.
func (r report) states() map[string]string {
	out := make(map[string]string, len(r.States))
	for category, raw := range r.States {
		var state string
		var object struct{ State string }
		if json.Unmarshal(raw, &state) != nil && json.Unmarshal(raw, &object) == nil {
			state = object.State
		}
		out[category] = state
	}
	return out
}
