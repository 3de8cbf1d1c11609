package consul

import "context"

// NodeInfo is one node with its services and the states of its checks.
type NodeInfo struct {
	Node       string
	Address    string
	Datacenter string // CatalogHosts alone tells it
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
// asks what Consul's own pages ask: the documented API has services only for
// one node, or nodes for one service, at a time.
func (c *Client) Inventory(ctx context.Context, q Query) ([]NodeInfo, Meta, error) {
	return read(ctx, c, "list nodes with their services", "", q, bulk(c, question{path: "/v1/internal/ui/nodes"}, pickInventory))
}

// CatalogHosts reads all nodes as Inventory does, without services and checks.
func (c *Client) CatalogHosts(ctx context.Context, q Query) ([]NodeInfo, Meta, error) {
	return read(ctx, c, "list nodes", "", q, bulk(c, question{path: "/v1/catalog/nodes"}, pickInventory))
}

func pickInventory(s *scanner) (list []NodeInfo) {
	s.array(func() {
		var n NodeInfo
		s.object(func(key []byte) {
			switch string(key) {
			case "Node":
				n.Node = s.str()
			case "Address":
				n.Address = s.str()
			case "Datacenter":
				n.Datacenter = s.str()
			case "Meta":
				n.Meta = s.texts()
			case "Services":
				n.Services = s.pickInstances()
			case "Checks":
				n.Checks = pickStates(s)
			default:
				s.skip()
			}
		})
		list = append(list, n)
	})
	return list
}

func (s *scanner) pickInstances() (list []Instance) {
	s.array(func() {
		var one Instance
		s.object(func(key []byte) {
			switch string(key) {
			case "ID":
				one.ID = s.str()
			case "Service":
				one.Service = s.str()
			default:
				s.skip()
			}
		})
		list = append(list, one)
	})
	return list
}

// texts takes an object of strings; null is nil.
func (s *scanner) texts() map[string]string {
	if s.null() {
		return nil
	}
	all := map[string]string{}
	s.object(func(key []byte) { all[s.unquote(key)] = s.str() })
	return all
}

// ServiceHosts is where one service has instances.
type ServiceHosts struct {
	Service string
	Nodes   []string // a node with two instances may stand there twice
}

// ServiceHosts reads on which nodes services have instances, in one request. It
// asks what Consul's own pages ask: of all answers that tell this it is the
// shortest. Services that were imported from peers are left out: their nodes
// are not of this catalog.
func (c *Client) ServiceHosts(ctx context.Context, q Query) ([]ServiceHosts, Meta, error) {
	return read(ctx, c, "list services with their nodes", "", q, bulk(c, question{path: "/v1/internal/ui/services"}, pickServiceHosts))
}

func pickServiceHosts(s *scanner) (list []ServiceHosts) {
	s.array(func() {
		var one ServiceHosts
		peer := ""
		s.object(func(key []byte) {
			switch string(key) {
			case "Name":
				one.Service = s.str()
			case "PeerName":
				peer = s.str()
			case "Nodes":
				s.array(func() { one.Nodes = append(one.Nodes, s.str()) })
			default:
				s.skip()
			}
		})
		if peer == "" {
			list = append(list, one)
		}
	})
	return list
}

// CheckState is what of a check says how its node is.
type CheckState struct {
	Node        string
	CheckID     string
	Status      string
	Notes       string
	ServiceID   string
	ServiceName string
}

// CheckStates reads the states of all checks.
func (c *Client) CheckStates(ctx context.Context, q Query) ([]CheckState, Meta, error) {
	return read(ctx, c, "read checks", "any", q, bulk(c, question{path: "/v1/health/state/any"}, pickStates))
}

func pickStates(s *scanner) (list []CheckState) {
	s.array(func() {
		var k CheckState
		s.object(func(key []byte) {
			switch string(key) {
			case "Node":
				k.Node = s.str()
			case "CheckID":
				k.CheckID = s.str()
			case "Status":
				k.Status = s.str()
			case "Notes":
				k.Notes = s.str()
			case "ServiceID":
				k.ServiceID = s.str()
			case "ServiceName":
				k.ServiceName = s.str()
			default:
				s.skip()
			}
		})
		list = append(list, k)
	})
	return list
}
