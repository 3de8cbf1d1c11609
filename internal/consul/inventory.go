package consul

import "context"

// NodeInfo is one node with its services and the states of its checks.
type NodeInfo struct {
	Node     string
	Services []struct{ ID, Service string } // one for each instance: its id and its name
	Checks   []CheckState
}

// Inventory reads all nodes with their services and checks, in one request. It
// asks what Consul's own pages ask: the documented API has services only for
// one node, or nodes for one service, at a time.
func (c *Client) Inventory(ctx context.Context, q Query) ([]NodeInfo, Meta, error) {
	return read(ctx, c, "list nodes with their services", "", q, raw[[]NodeInfo](c, "/v1/internal/ui/nodes"))
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
