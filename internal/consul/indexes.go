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

// CheckIndexes reads the indexes of all checks.
func (c *Client) CheckIndexes(ctx context.Context, q Query) ([]CheckIndex, Meta, error) {
	return read(ctx, c, "read checks", "any", q, raw[[]CheckIndex](c, "/v1/health/state/any"))
}

// NodeServiceIndexes reads the indexes of a node's services by their ids. The
// map is nil when there is no such node.
func (c *Client) NodeServiceIndexes(ctx context.Context, node string, q Query) (map[string]ServiceIndex, Meta, error) {
	type answer struct{ Services map[string]ServiceIndex }
	v, meta, err := read(ctx, c, "read node", node, q, raw[*answer](c, "/v1/catalog/node/"+node))
	if err != nil || v == nil {
		return nil, meta, err
	}
	return v.Services, meta, nil
}

// NodeIndexes reads when each node was last registered anew, by name.
func (c *Client) NodeIndexes(ctx context.Context, q Query) (map[string]uint64, Meta, error) {
	type node struct {
		Node        string
		ModifyIndex uint64
	}
	list, meta, err := read(ctx, c, "list nodes", "", q, raw[[]node](c, "/v1/catalog/nodes"))
	if err != nil {
		return nil, meta, err
	}
	indexes := make(map[string]uint64, len(list))
	for _, n := range list {
		indexes[n.Node] = n.ModifyIndex
	}
	return indexes, meta, nil
}
