package consulmodel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// node is one node of the catalog with its services and checks. It is never changed once stored.
type node struct {
	name, address string
	meta          map[string]string
	services      []service
	checks        []check
	index         uint64
}

type service struct {
	ID, Service string
	Tags        []string
	Meta        map[string]string
	Port        int
	Address     string
	ModifyIndex uint64
}

type check struct {
	Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName string

	CreateIndex, ModifyIndex uint64
}

// writeCatalog carries out a PUT below /v1/catalog/.
func (m *Model) writeCatalog(verb string, body []byte) *Answer {
	var asked struct {
		Node, Address, ServiceID, CheckID string

		NodeMeta map[string]string
		Service  *service
		Check    *check
		Checks   []check
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return refuse(http.StatusBadRequest, fmt.Sprintf("Request decode failed: %v", err))
	}
	m.raft++
	switch verb {
	case "register":
		if asked.Check != nil {
			asked.Checks = append(asked.Checks, *asked.Check)
		}
		if err := m.register(asked.Node, asked.Address, asked.NodeMeta, asked.Service, asked.Checks); err != nil {
			return refuse(http.StatusInternalServerError, err.Error())
		}
	case "deregister":
		m.deregister(asked.Node, asked.ServiceID, asked.CheckID)
	default:
		return refuse(http.StatusNotFound, "the model has no catalog/"+verb)
	}
	return said(true)
}

// register adds a node, a service and checks, or replaces those with the same name or id. The index of what is as it was
// stays.
func (m *Model) register(name, address string, meta map[string]string, s *service, checks []check) error {
	n := &node{name: name, address: address, meta: meta, index: m.raft}
	if old := m.nodes[name]; old != nil {
		n.services, n.checks = slices.Clone(old.services), slices.Clone(old.checks)
		if old.address == address && maps.Equal(old.meta, meta) {
			n.index = old.index
		}
	}
	if s != nil {
		added := *s
		if added.ID == "" {
			added.ID = added.Service
		}
		at, there := slices.BinarySearchFunc(n.services, added.ID, func(o service, id string) int { return cmp.Compare(o.ID, id) })
		switch {
		case !there:
			added.ModifyIndex = m.raft
			n.services = slices.Insert(n.services, at, added)
		case !n.services[at].same(added):
			added.ModifyIndex = m.raft
			n.services[at] = added
		}
	}
	for _, c := range checks {
		if c.ServiceID != "" {
			of := slices.IndexFunc(n.services, func(s service) bool { return s.ID == c.ServiceID })
			if of < 0 {
				return errors.New("Missing service registration")
			}
			c.ServiceName = n.services[of].Service
		}
		if c.Status == "" {
			c.Status = "critical"
		}
		c.Node, c.CreateIndex, c.ModifyIndex = name, m.raft, m.raft
		at, there := slices.BinarySearchFunc(n.checks, c.CheckID, func(o check, id string) int { return cmp.Compare(o.CheckID, id) })
		if !there {
			n.checks = slices.Insert(n.checks, at, c)
			continue
		}
		old := n.checks[at]
		c.CreateIndex, c.ModifyIndex = old.CreateIndex, old.ModifyIndex
		if c != old {
			c.ModifyIndex = m.raft
			n.checks[at] = c
		}
	}
	m.nodes[name] = n
	m.catalog, m.changed.catalog = m.raft, true
	return nil
}

// same reports whether registering o changes nothing.
func (s service) same(o service) bool {
	return s.Service == o.Service && s.Port == o.Port && s.Address == o.Address && slices.Equal(s.Tags, o.Tags) && maps.Equal(s.Meta, o.Meta)
}

// deregister removes a check, a service, or a whole node.
func (m *Model) deregister(name, serviceID, checkID string) {
	old := m.nodes[name]
	switch {
	case old == nil:
		return
	case serviceID == "" && checkID == "":
		delete(m.nodes, name)
	default:
		n := *old
		n.services = slices.DeleteFunc(slices.Clone(old.services), func(s service) bool { return serviceID != "" && s.ID == serviceID })
		n.checks = slices.DeleteFunc(slices.Clone(old.checks), func(c check) bool {
			return checkID != "" && c.CheckID == checkID || serviceID != "" && c.ServiceID == serviceID
		})
		m.nodes[name] = &n
	}
	m.catalog, m.changed.catalog = m.raft, true
}

// Register adds a node with one service.
func (m *Model) Register(node, address, serviceID, name string) {
	m.raft++
	_ = m.register(node, address, nil, &service{ID: serviceID, Service: name}, []check{{
		CheckID: "service:" + serviceID, Name: name, Status: "passing", ServiceID: serviceID,
	}}) // its check is of its service
	m.tell()
}

// SetCheck adds a check of a node, or changes its state; an empty state removes it.
func (m *Model) SetCheck(node, id, status, notes string) {
	m.raft++
	if status == "" {
		m.deregister(node, "", id)
	} else if old := m.nodes[node]; old != nil {
		_ = m.register(node, old.address, old.meta, nil, []check{{CheckID: id, Name: id, Status: status, Notes: notes}}) // of no service
	}
	m.tell()
}

// readCatalog answers a read of nodes, services or checks. The index is that of the whole catalog.
func (m *Model) readCatalog(q *Query) *Answer {
	index := max(m.catalog, 1)
	of := func(v any) *Answer {
		body, err := json.Marshal(v)
		if err != nil {
			return refuse(http.StatusInternalServerError, err.Error())
		}
		return &Answer{Status: http.StatusOK, Index: index, Body: body}
	}
	last := q.path[strings.LastIndexByte(q.path, '/')+1:]
	switch {
	case q.path == "/v1/status/leader":
		return &Answer{Status: http.StatusOK, Body: []byte(`"127.0.0.1:8300"`)}
	case q.path == "/v1/agent/self":
		return &Answer{Status: http.StatusOK, Body: []byte(`{"Config":{"NodeName":"model","Datacenter":"dc1","Server":true,"Version":"1.22.6"},"Member":{"Addr":"127.0.0.1"},"DebugConfig":{}}`)}
	case q.path == "/v1/catalog/datacenters":
		return &Answer{Status: http.StatusOK, Body: []byte(`["dc1"]`)}
	case q.path == "/v1/catalog/nodes":
		return of(m.nodeList(q.params.Has("node-meta"), false))
	case q.path == "/v1/internal/ui/nodes":
		return of(m.nodeList(false, true))
	case q.path == "/v1/catalog/services":
		return of(m.serviceNames(q.params.Has("node-meta")))
	case q.path == "/v1/internal/ui/services":
		return of(m.serviceHosts())
	case strings.HasPrefix(q.path, "/v1/health/state/"):
		return of(m.checksWhere(func(c check) bool { return last == "any" || c.Status == last }))
	case strings.HasPrefix(q.path, "/v1/health/node/"):
		return of(m.checksWhere(func(c check) bool { return c.Node == last }))
	case strings.HasPrefix(q.path, "/v1/internal/ui/node/"):
		if n := m.nodes[last]; n != nil {
			return of(m.describe(n, true))
		}
		return &Answer{Status: http.StatusNotFound, Index: index}
	case strings.HasPrefix(q.path, "/v1/catalog/node/"):
		n := m.nodes[last]
		if n == nil {
			return of(nil)
		}
		services := map[string]service{}
		for _, s := range n.services {
			services[s.ID] = s
		}
		return of(map[string]any{"Node": m.describe(n, false), "Services": services})
	}
	return refuse(http.StatusNotFound, "the model has no GET "+q.path)
}

func (m *Model) sorted() []*node {
	all := make([]*node, 0, len(m.nodes))
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		all = append(all, m.nodes[name])
	}
	return all
}

func (m *Model) describe(n *node, whole bool) map[string]any {
	d := map[string]any{"Node": n.name, "Address": n.address, "Meta": n.meta}
	if !whole {
		d["Datacenter"], d["ModifyIndex"] = "dc1", n.index
	} else {
		d["Services"], d["Checks"] = append([]service{}, n.services...), append([]check{}, n.checks...)
	}
	return d
}

// nodeList are the nodes; none has the metadata that jorc asks for when it wants only the index.
func (m *Model) nodeList(none, whole bool) []map[string]any {
	all := []map[string]any{}
	for _, n := range m.sorted() {
		if !none {
			all = append(all, m.describe(n, whole))
		}
	}
	return all
}

func (m *Model) serviceNames(none bool) map[string][]string {
	all := map[string][]string{}
	for _, n := range m.nodes {
		for _, s := range n.services {
			if !none {
				all[s.Service] = slices.Compact(slices.Sorted(slices.Values(append(all[s.Service], s.Tags...))))
			}
		}
	}
	return all
}

// serviceHosts are the services with the nodes that have one.
func (m *Model) serviceHosts() []map[string]any {
	nodes := map[string][]string{}
	for _, n := range m.sorted() {
		for _, s := range n.services {
			nodes[s.Service] = append(nodes[s.Service], n.name)
		}
	}
	all := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, map[string]any{"Name": name, "Nodes": slices.Compact(nodes[name])})
	}
	return all
}

// AgentChecks is the answer to /v1/agent/checks of the Consul agent on a node; the filter is not applied.
func (m *Model) AgentChecks(node string) *Query {
	all := map[string]check{}
	for _, c := range m.checksWhere(func(c check) bool { return c.Node == node && c.CheckID != "serfHealth" }) {
		all[c.CheckID] = c
	}
	body, err := json.Marshal(all)
	if err != nil {
		return Answered(http.StatusInternalServerError, err.Error())
	}
	return &Query{answer: &Answer{Status: http.StatusOK, Body: body}}
}

func (m *Model) checksWhere(want func(check) bool) []check {
	all := []check{}
	for _, n := range m.sorted() {
		for _, c := range n.checks {
			if want(c) {
				all = append(all, c)
			}
		}
	}
	return all
}
