package consul

import "context"

// NodeServices is one node and the names of its services.
type NodeServices struct {
	Node     string
	Services []struct {
		ID      string
		Service string
	}
}

// AllNodeServices reads which services are on which nodes, in one request. It
// asks what Consul's own pages ask: the documented API has this only for one
// node, or for one service, at a time.
func (c *Client) AllNodeServices(ctx context.Context, q Query) ([]NodeServices, Meta, error) {
	return read(ctx, c, "list the nodes' services", "", q, raw[[]NodeServices](c, "/v1/internal/ui/nodes"))
}

// CheckState is what of a check says how its node is.
type CheckState struct {
	Node      string
	CheckID   string
	Status    string
	Notes     string
	ServiceID string
}

// CheckStates reads the states of all checks.
func (c *Client) CheckStates(ctx context.Context, q Query) ([]CheckState, Meta, error) {
	return read(ctx, c, "read checks", "any", q, raw[[]CheckState](c, "/v1/health/state/any"))
}
