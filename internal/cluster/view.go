package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
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

// States of Member.Agent, and of Member.Health beside Consul's own.
const (
	AgentUp           = "up"
	AgentDown         = "down"
	HealthMaintenance = consul.HealthMaint
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

	maintainedByJorc bool
}

// MembersOptions say which members to read and what of them.
type MembersOptions struct {
	Filter *Filter // nil: all
	Need   Need    // beside what the filter needs
	// Unreadable, if not nil, is told of records that cannot be read; they are
	// left out then, and no error.
	Unreadable func(node string, err error)
}

// sources are the answers that members are put together from.
type sources struct {
	records   map[string]kv.Leaf[Record]
	leaders   Leaders
	nodes     []consul.NodeInfo   // without services and checks
	checks    []consul.CheckState // those that checksFor asks for
	services  []consul.ServiceHosts
	inventory []consul.NodeInfo // with services and checks
	reports   map[string]kv.Leaf[report]
}

// Members reads the members that o.Filter matches, in order of their names,
// with at most six requests whatever their number. It returns kv.ErrDamaged or
// kv.ErrNewer for a record that cannot be read, or a class of package consul;
// consul.ErrDenied also when the token does not see everything that was asked
// for.
func (c *Cluster) Members(ctx context.Context, o MembersOptions) ([]Member, error) {
	need := o.Need
	if o.Filter != nil {
		need |= o.Filter.need
	}
	s, err := c.read(ctx, need)
	if err != nil {
		return nil, err
	}
	for node, leaf := range s.records {
		if leaf.Err != nil && o.Unreadable != nil {
			o.Unreadable(node, leaf.Err)
			delete(s.records, node)
		}
	}
	all, err := s.members(catalog.PresenceID(c.name), need)
	if err != nil {
		return nil, err
	}
	if o.Filter == nil {
		return all, nil
	}
	return slices.DeleteFunc(all, func(m Member) bool { return !o.Filter.Match(&m) }), nil
}

// read asks for everything that is needed at one time.
func (c *Cluster) read(ctx context.Context, need Need) (sources, error) {
	var s sources
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { s.records, err = c.members.List(ctx); return err })
	g.Go(func() (err error) { s.leaders, err = c.Leaders(ctx); return err })
	if need&NeedReports != 0 {
		g.Go(func() (err error) { s.reports, err = c.reports.List(ctx); return err })
	}
	if need&(NeedCatalog|NeedDatacenter|needChecks) != 0 {
		g.Go(func() (err error) { s.nodes, err = whole(c.client.CatalogHosts(ctx, consul.Query{})); return err })
	}
	// One answer with nodes, services and checks is as long as all others
	// together, and Consul writes it with one processor.
	if need&NeedServices != 0 {
		g.Go(func() (err error) { s.services, err = whole(c.client.ServiceHosts(ctx, consul.Query{})); return err })
	}
	if need&needChecks != 0 {
		q := consul.Query{Filter: checksFor(need, catalog.PresenceID(c.name))}
		g.Go(func() (err error) { s.checks, err = whole(c.client.CheckStates(ctx, q)); return err })
	}
	err := g.Wait()
	return s, err
}

// whole turns an answer that ACLs made smaller into a failure: what is missing
// must not look as if it were not there.
func whole[T any](v T, meta consul.Meta, err error) (T, error) {
	if err == nil && meta.Filtered {
		err = fmt.Errorf("read the catalog: the token does not see all of it (it needs node:read and service:read): %w", consul.ErrDenied)
	}
	return v, err
}

// members puts the answers together.
func (s sources) members(presence string, need Need) ([]Member, error) {
	all := make([]Member, 0, len(s.records))
	at := make(map[string]int, len(s.records))
	for _, node := range slices.Sorted(maps.Keys(s.records)) {
		leaf := s.records[node]
		if leaf.Err != nil {
			return nil, leaf.Err
		}
		at[node] = len(all)
		all = append(all, newMember(node, leaf.Value, s.leaders))
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
		s.judge(all, at, presence, need)
	}
	return all, nil
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
