package consul

import "context"

// CheckIndex says which check of what was last changed when. Reading only this
// of all checks costs a fraction of reading them whole.
type CheckIndex struct {
	Node        string
	CheckID     string
	ServiceName string // empty for a check of the node
	ModifyIndex uint64
}

// ServiceIndex says when an instance was last registered anew.
type ServiceIndex struct {
	Service     string // name
	ModifyIndex uint64
}

// CheckIndexes reads the indexes of all checks; none when q waited in vain.
func (c *Client) CheckIndexes(ctx context.Context, q Query) ([]CheckIndex, Meta, error) {
	return read(ctx, c, "read checks", "any", q, bulk(c, question{path: "/v1/health/state/any", news: true}, pickChecks))
}

func pickChecks(s *scanner) (list []CheckIndex) {
	s.array(func() {
		var i CheckIndex
		s.object(func(key []byte) {
			switch string(key) {
			case "Node":
				i.Node = s.str()
			case "CheckID":
				i.CheckID = s.str()
			case "ServiceName":
				i.ServiceName = s.str()
			case "ModifyIndex":
				i.ModifyIndex = s.number()
			default:
				s.skip()
			}
		})
		list = append(list, i)
	})
	return list
}

// NodeServiceIndexes reads the indexes of a node's services by their ids. The
// map is nil when there is no such node.
func (c *Client) NodeServiceIndexes(ctx context.Context, node string, q Query) (map[string]ServiceIndex, Meta, error) {
	return read(ctx, c, "read node", node, q, bulk(c, question{path: "/v1/catalog/node/" + node}, pickServices))
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
			services[s.unquote(id)] = s.pickService()
		})
	})
	return services
}

func (s *scanner) pickService() (i ServiceIndex) {
	s.object(func(key []byte) {
		switch string(key) {
		case "Service":
			i.Service = s.str()
		case "ModifyIndex":
			i.ModifyIndex = s.number()
		default:
			s.skip()
		}
	})
	return i
}

// NodeIndexes reads when each node was last registered anew, by name; none
// when q waited in vain.
func (c *Client) NodeIndexes(ctx context.Context, q Query) (map[string]uint64, Meta, error) {
	return read(ctx, c, "list nodes", "", q, bulk(c, question{path: "/v1/catalog/nodes", news: true}, pickNodes))
}

func pickNodes(s *scanner) map[string]uint64 {
	indexes := map[string]uint64{}
	s.array(func() {
		name, index := "", uint64(0)
		s.object(func(key []byte) {
			switch string(key) {
			case "Node":
				name = s.str()
			case "ModifyIndex":
				index = s.number()
			default:
				s.skip()
			}
		})
		indexes[name] = index
	})
	return indexes
}

// ServicesIndex waits as a read of all services does, but returns nothing of
// them: with an index in q it tells that something was registered.
func (c *Client) ServicesIndex(ctx context.Context, q Query) (Meta, error) {
	_, meta, err := read(ctx, c, "list services", "", q, bulk(c, question{path: "/v1/catalog/services", news: true}, func(s *scanner) struct{} {
		s.at = len(s.text)
		return struct{}{}
	}))
	return meta, err
}
