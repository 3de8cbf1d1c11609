package consul

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// Self describes the local agent.
type Self struct {
	Config struct {
		NodeName   string
		NodeID     string
		Datacenter string
		Server     bool
		Version    string
	}
	Member struct {
		Addr string
	}
	DebugConfig map[string]any
}

// AgentSelf reads the local agent's configuration.
func (c *Client) AgentSelf(ctx context.Context) (Self, error) {
	v, _, err := read(ctx, c, "read the agent's configuration", "", Query{}, raw[Self](c, "/v1/agent/self"))
	return v, err
}

// AgentServices reads the services registered with the local agent, by id.
func (c *Client) AgentServices(ctx context.Context, filter string) (map[string]*AgentService, error) {
	v, _, err := read(ctx, c, "read the agent's services", "", Query{Filter: filter},
		func(o *api.QueryOptions) (map[string]*AgentService, *api.QueryMeta, error) {
			v, err := c.api.Agent().ServicesWithFilterOpts(filter, o)
			return v, nil, err
		})
	return v, err
}

// AgentService reads one service of the local agent; with Query.Hash it blocks
// until the service's hash differs. ErrNotFound: the agent has no such service.
func (c *Client) AgentService(ctx context.Context, id string, q Query) (*AgentService, Meta, error) {
	return read(ctx, c, "read the agent's service", id, q, func(o *api.QueryOptions) (*AgentService, *api.QueryMeta, error) {
		return c.api.Agent().Service(id, o)
	})
}

// AgentChecks reads the checks of the local agent, by id.
func (c *Client) AgentChecks(ctx context.Context, filter string) (map[string]*AgentCheck, error) {
	v, _, err := read(ctx, c, "read the agent's checks", "", Query{Filter: filter},
		func(o *api.QueryOptions) (map[string]*AgentCheck, *api.QueryMeta, error) {
			v, err := c.api.Agent().ChecksWithFilterOpts(filter, o)
			return v, nil, err
		})
	return v, err
}

// RegisterService registers a service and its checks with the local agent.
// Checks of the service that the registration does not name are removed.
func (c *Client) RegisterService(ctx context.Context, s *ServiceRegistration) error {
	return c.writeOnly(ctx, "register service", s.ID, func(ctx context.Context) error {
		return c.api.Agent().ServiceRegisterOpts(s, api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx))
	})
}

// AmendService registers a service and its checks with the local agent. Other
// checks of the service, such as its maintenance mode, stay. Checks that are
// registered already keep their status.
func (c *Client) AmendService(ctx context.Context, s *ServiceRegistration) error {
	return c.writeOnly(ctx, "register service", s.ID, func(ctx context.Context) error {
		return c.api.Agent().ServiceRegisterOpts(s, api.ServiceRegisterOpts{}.WithContext(ctx))
	})
}

// DeregisterService removes a service from the local agent. ErrNotFound: the
// agent has no such service.
func (c *Client) DeregisterService(ctx context.Context, id string) error {
	return c.writeOnly(ctx, "deregister service", id, func(ctx context.Context) error {
		return c.api.Agent().ServiceDeregisterOpts(id, (&api.QueryOptions{}).WithContext(ctx))
	})
}

// DeregisterCheck removes a check from the local agent. ErrNotFound: the agent
// has no such check.
func (c *Client) DeregisterCheck(ctx context.Context, id string) error {
	return c.writeOnly(ctx, "deregister check", id, func(ctx context.Context) error {
		return c.api.Agent().CheckDeregisterOpts(id, (&api.QueryOptions{}).WithContext(ctx))
	})
}

// UpdateTTL sets the status of a TTL check: HealthPassing, HealthWarning or
// HealthCritical. ErrNotFound: the agent has no such check.
func (c *Client) UpdateTTL(ctx context.Context, checkID, output, status string) error {
	return c.writeOnly(ctx, "update check", checkID, func(ctx context.Context) error {
		return c.api.Agent().UpdateTTLOpts(checkID, output, status, (&api.QueryOptions{}).WithContext(ctx))
	})
}

// SetMaintenance puts a service of the local agent into maintenance mode with a
// reason, or takes it out of it.
func (c *Client) SetMaintenance(ctx context.Context, serviceID string, on bool, reason string) error {
	return c.writeOnly(ctx, "set maintenance of service", serviceID, func(ctx context.Context) error {
		o := (&api.QueryOptions{}).WithContext(ctx)
		if on {
			return c.api.Agent().EnableServiceMaintenanceOpts(serviceID, reason, o)
		}
		return c.api.Agent().DisableServiceMaintenanceOpts(serviceID, o)
	})
}

// SetNodeMaintenance puts the local agent's node, with all its services, into
// maintenance mode with a reason, or takes it out of it. It does not use the
// API's call, which takes no context.
func (c *Client) SetNodeMaintenance(ctx context.Context, on bool, reason string) error {
	return c.writeOnly(ctx, "set maintenance of the node", "", func(ctx context.Context) error {
		q := url.Values{"enable": {strconv.FormatBool(on)}}
		if on {
			q.Set("reason", reason)
		}
		resp, err := c.send(ctx, http.MethodPut, "/v1/agent/maintenance?"+q.Encode(), nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// CatalogRegister writes to the catalog directly, for nodes without an agent.
func (c *Client) CatalogRegister(ctx context.Context, r *CatalogRegistration) error {
	return c.writeOnly(ctx, "register in the catalog", r.Node, func(ctx context.Context) error {
		_, err := c.api.Catalog().Register(r, writeOptions(ctx))
		return err
	})
}

// CatalogDeregister removes an entry of CatalogRegister from the catalog.
func (c *Client) CatalogDeregister(ctx context.Context, d *CatalogDeregister) error {
	return c.writeOnly(ctx, "deregister from the catalog", d.Node, func(ctx context.Context) error {
		_, err := c.api.Catalog().Deregister(d, writeOptions(ctx))
		return err
	})
}

func (c *Client) writeOnly(ctx context.Context, op, name string, do func(context.Context) error) error {
	_, err := write(ctx, c, op, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

func writeOptions(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{}).WithContext(ctx)
}

// NodeMaintenance is the id of the check that a node in maintenance mode has.
const NodeMaintenance = api.NodeMaint

// GossipCheck is the check by which Consul shows whether gossip reaches a node.
const GossipCheck = "serfHealth"

// JorcNote is the prefix of the notes of a maintenance mode that jorc started.
const JorcNote = "jorc:"

// IsMaintenance reports whether a check is that of the maintenance mode of a
// node or a service.
func IsMaintenance(checkID string) bool {
	return checkID == NodeMaintenance || strings.HasPrefix(checkID, api.ServiceMaintPrefix)
}

// StartedByJorc reports whether the notes are those of a maintenance mode that
// jorc started.
func StartedByJorc(notes string) bool { return strings.HasPrefix(notes, JorcNote) }

// Date reads the agent's clock, in whole seconds.
func (c *Client) Date(ctx context.Context) (time.Time, error) {
	v, _, err := read(ctx, c, "read the agent's clock", "", Query{}, func(o *api.QueryOptions) (time.Time, *api.QueryMeta, error) {
		req, err := http.NewRequestWithContext(o.Context(), http.MethodGet, c.base+"/v1/status/leader", http.NoBody)
		if err != nil {
			return time.Time{}, nil, err
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return time.Time{}, nil, err
		}
		defer resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			return time.Time{}, nil, fmt.Errorf("the answer's date: %w", err)
		}
		return date, nil, nil
	})
	return v, err
}
