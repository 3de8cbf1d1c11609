package consul

import (
	"context"
	"slices"

	"github.com/hashicorp/consul/api"
)

// NodeInfo is one node with its services and the states of its checks.
type NodeInfo struct {
	Node       string
	Address    string
	Datacenter string // set by CatalogHosts only
	Meta       map[string]string
	Services   []Instance
	Checks     []CheckState
}

// Instance is one instance of a service.
type Instance struct {
	ID      string
	Service string // the name
}

// Inventory reads all nodes with their services and checks, in one request. It
// uses the endpoint of Consul's web interface: the documented API returns the
// services of one node, or the nodes of one service, at a time.
func (c *Client) Inventory(ctx context.Context, q Query) ([]NodeInfo, Meta, error) {
	return read(ctx, c, "list nodes with their services", "", q, bulk(c, request{path: "/v1/internal/ui/nodes"}, nodeMembers.list))
}

// CatalogHosts reads all nodes as Inventory does, without services and checks.
func (c *Client) CatalogHosts(ctx context.Context, q Query) ([]NodeInfo, Meta, error) {
	return read(ctx, c, "list nodes", "", q, bulk(c, request{path: "/v1/catalog/nodes"}, nodeMembers.list))
}

// InventoryOf reads one node as Inventory does; the result is nil if the node does
// not exist.
func (c *Client) InventoryOf(ctx context.Context, node string, q Query) (*NodeInfo, Meta, error) {
	pick := func(s *scanner) *NodeInfo {
		if s.null() {
			return nil
		}
		n := nodeMembers.read(s)
		return &n
	}
	return read(ctx, c, "read node", node, q, bulk(c, request{path: "/v1/internal/ui/node/" + node, optional: true}, pick))
}

var nodeMembers = members[NodeInfo]{
	"Node":       func(s *scanner, n *NodeInfo) { n.Node = s.str() },
	"Address":    func(s *scanner, n *NodeInfo) { n.Address = s.str() },
	"Datacenter": func(s *scanner, n *NodeInfo) { n.Datacenter = s.str() },
	"Meta":       func(s *scanner, n *NodeInfo) { n.Meta = s.texts() },
	"Services":   func(s *scanner, n *NodeInfo) { n.Services = instanceMembers.list(s) },
	"Checks":     func(s *scanner, n *NodeInfo) { n.Checks = stateMembers.list(s) },
}

var instanceMembers = members[Instance]{
	"ID":      func(s *scanner, i *Instance) { i.ID = s.str() },
	"Service": func(s *scanner, i *Instance) { i.Service = s.str() },
}

// texts reads an object of strings; null is nil.
func (s *scanner) texts() map[string]string {
	if s.null() {
		return nil
	}
	all := map[string]string{}
	s.object(func(key []byte) { all[s.unquote(key)] = s.str() })
	return all
}

// ServiceHosts names the nodes that have instances of one service.
type ServiceHosts struct {
	Service string
	Nodes   []string // a node with two instances may appear twice
	peer    string
}

// ServiceHosts reads the nodes of all services, in one request. It uses the
// endpoint of Consul's web interface, which has the shortest answer. Services
// imported from peers are left out: their nodes are not in this catalog.
func (c *Client) ServiceHosts(ctx context.Context, q Query) ([]ServiceHosts, Meta, error) {
	return read(ctx, c, "list services with their nodes", "", q, bulk(c, request{path: "/v1/internal/ui/services"}, pickServiceHosts))
}

var hostsMembers = members[ServiceHosts]{
	"Name":     func(s *scanner, h *ServiceHosts) { h.Service = s.str() },
	"PeerName": func(s *scanner, h *ServiceHosts) { h.peer = s.str() },
	"Nodes":    func(s *scanner, h *ServiceHosts) { s.array(func() { h.Nodes = append(h.Nodes, s.str()) }) },
}

func pickServiceHosts(s *scanner) []ServiceHosts {
	return slices.DeleteFunc(hostsMembers.list(s), func(h ServiceHosts) bool { return h.peer != "" })
}

// CheckState is the part of a check that its node's health is computed from.
type CheckState struct {
	Node        string
	CheckID     string
	Status      string
	Notes       string
	ServiceID   string
	ServiceName string
}

// CheckStates reads the status of all checks.
func (c *Client) CheckStates(ctx context.Context, q Query) ([]CheckState, Meta, error) {
	return read(ctx, c, "read checks", "any", q, bulk(c, request{path: "/v1/health/state/any"}, stateMembers.list))
}

// ChecksInState reads all checks in one state. Consul finds them by an index, so
// the checks in other states cost nothing.
func (c *Client) ChecksInState(ctx context.Context, state string, q Query) ([]CheckState, Meta, error) {
	return read(ctx, c, "read checks", state, q, bulk(c, request{path: "/v1/health/state/" + state}, stateMembers.list))
}

var stateMembers = members[CheckState]{
	"Node":        func(s *scanner, k *CheckState) { k.Node = s.str() },
	"CheckID":     func(s *scanner, k *CheckState) { k.CheckID = s.str() },
	"Status":      func(s *scanner, k *CheckState) { k.Status = s.str() },
	"Notes":       func(s *scanner, k *CheckState) { k.Notes = s.str() },
	"ServiceID":   func(s *scanner, k *CheckState) { k.ServiceID = s.str() },
	"ServiceName": func(s *scanner, k *CheckState) { k.ServiceName = s.str() },
}

// CheckIndex is the index of a check's last change. Reading only this part of
// all checks costs a fraction of reading them whole.
type CheckIndex struct {
	Node        string
	CheckID     string
	ServiceName string // empty for a check of the node
	ModifyIndex uint64
}

// ServiceIndex is the index of an instance's last registration.
type ServiceIndex struct {
	Service     string // name
	ModifyIndex uint64
}

// CheckIndexes reads the indexes of all checks; it returns none if q waited and
// nothing changed.
func (c *Client) CheckIndexes(ctx context.Context, q Query) ([]CheckIndex, Meta, error) {
	return c.CheckIndexesIn(ctx, "any", q)
}

// CheckIndexesIn is CheckIndexes for the checks in one state, which Consul finds by an index.
func (c *Client) CheckIndexesIn(ctx context.Context, state string, q Query) ([]CheckIndex, Meta, error) {
	return read(ctx, c, "read checks", state, q, bulk(c, request{path: "/v1/health/state/" + state, skipUnchanged: true}, checkIndexMembers.list))
}

var checkIndexMembers = members[CheckIndex]{
	"Node":        func(s *scanner, i *CheckIndex) { i.Node = s.str() },
	"CheckID":     func(s *scanner, i *CheckIndex) { i.CheckID = s.str() },
	"ServiceName": func(s *scanner, i *CheckIndex) { i.ServiceName = s.str() },
	"ModifyIndex": func(s *scanner, i *CheckIndex) { i.ModifyIndex = s.number() },
}

// NodeServiceIndexes reads the indexes of a node's services by their ids. The
// map is nil if the node does not exist.
func (c *Client) NodeServiceIndexes(ctx context.Context, node string, q Query) (map[string]ServiceIndex, Meta, error) {
	return read(ctx, c, "read node", node, q, bulk(c, request{path: "/v1/catalog/node/" + node}, pickServices))
}

func pickServices(s *scanner) (services map[string]ServiceIndex) {
	if s.null() {
		return nil
	}
	services = map[string]ServiceIndex{}
	s.object(func(key []byte) {
		if string(key) != "Services" {
			s.skip()
			return
		}
		s.object(func(id []byte) {
			services[s.unquote(id)] = serviceIndexMembers.read(s)
		})
	})
	return services
}

var serviceIndexMembers = members[ServiceIndex]{
	"Service":     func(s *scanner, i *ServiceIndex) { i.Service = s.str() },
	"ModifyIndex": func(s *scanner, i *ServiceIndex) { i.ModifyIndex = s.number() },
}

// NodeIndexes reads the index of each node's last registration, by name; it
// returns none if q waited and nothing changed.
func (c *Client) NodeIndexes(ctx context.Context, q Query) (map[string]uint64, Meta, error) {
	return read(ctx, c, "list nodes", "", q, bulk(c, request{path: "/v1/catalog/nodes", skipUnchanged: true}, pickNodes))
}

type nodeIndex struct {
	name  string
	index uint64
}

var nodeIndexMembers = members[nodeIndex]{
	"Node":        func(s *scanner, n *nodeIndex) { n.name = s.str() },
	"ModifyIndex": func(s *scanner, n *nodeIndex) { n.index = s.number() },
}

func pickNodes(s *scanner) map[string]uint64 {
	indexes := map[string]uint64{}
	s.array(func() {
		n := nodeIndexMembers.read(s)
		indexes[n.name] = n.index
	})
	return indexes
}

// ServicesIndex waits as a read of all services does, but returns only the
// answer's index: a higher one means that something was registered.
func (c *Client) ServicesIndex(ctx context.Context, q Query) (Meta, error) {
	_, meta, err := read(ctx, c, "list services", "", q, bulk(c, request{path: "/v1/catalog/services", skipUnchanged: true}, func(s *scanner) struct{} {
		s.at = len(s.text)
		return struct{}{}
	}))
	return meta, err
}

// noNode returns metadata that no node has: an answer about nodes with it is empty,
// and its index is that of all nodes, at the same cost whatever their number.
func noNode() map[string]string { return map[string]string{"jorc": "none"} }

// NodesIndex returns when a node was last registered or removed.
func (c *Client) NodesIndex(ctx context.Context, q Query) (uint64, error) {
	_, meta, err := read(ctx, c, "list nodes", "", q, func(o *api.QueryOptions) ([]*api.Node, *api.QueryMeta, error) {
		o.NodeMeta = noNode()
		return c.api.Catalog().Nodes(o)
	})
	return meta.Index, err
}

// RegistrationsIndex returns when a node or a service was last registered or
// removed, or a check of a node was removed.
func (c *Client) RegistrationsIndex(ctx context.Context, q Query) (uint64, error) {
	_, meta, err := read(ctx, c, "list services", "", q, func(o *api.QueryOptions) (map[string][]string, *api.QueryMeta, error) {
		o.NodeMeta = noNode()
		return c.api.Catalog().Services(o)
	})
	return meta.Index, err
}
