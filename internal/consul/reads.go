package consul

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/hashicorp/consul/api"
)

// KVGet reads one key. The pair is nil if the key does not exist.
func (c *Client) KVGet(ctx context.Context, key string, q Query) (*KVPair, Meta, error) {
	pair, meta, err := read(ctx, c, "read key", key, q, func(o *api.QueryOptions) (*KVPair, *api.QueryMeta, error) {
		return c.api.KV().Get(key, o)
	})
	meta.Content = 1
	if pair != nil {
		meta.Content += pair.ModifyIndex
	}
	return pair, meta, err
}

// KVList reads all pairs whose keys begin with prefix, in order of keys.
func (c *Client) KVList(ctx context.Context, prefix string, q Query) (KVPairs, Meta, error) {
	return read(ctx, c, "list keys", prefix, q, bulk(c, request{path: "/v1/kv/" + strings.TrimPrefix(prefix, "/"), recurse: true}, pickPairs))
}

// KVKeys reads the names of all keys that begin with prefix. If separator is not
// empty, each name ends after the first separator behind the prefix.
func (c *Client) KVKeys(ctx context.Context, prefix, separator string, q Query) ([]string, Meta, error) {
	return read(ctx, c, "list key names", prefix, q, func(o *api.QueryOptions) ([]string, *api.QueryMeta, error) {
		return c.api.KV().Keys(prefix, separator, o)
	})
}

// HealthService reads the instances of a service with their checks; with
// passing, only instances whose checks all pass.
func (c *Client) HealthService(ctx context.Context, service, tag string, passing bool, q Query) ([]*ServiceEntry, Meta, error) {
	return read(ctx, c, "read service", service, q, func(o *api.QueryOptions) ([]*ServiceEntry, *api.QueryMeta, error) {
		return c.api.Health().Service(service, tag, passing, o)
	})
}

// HealthConnect is HealthService for instances that accept mesh connections.
func (c *Client) HealthConnect(ctx context.Context, service, tag string, passing bool, q Query) ([]*ServiceEntry, Meta, error) {
	return read(ctx, c, "read mesh service", service, q, func(o *api.QueryOptions) ([]*ServiceEntry, *api.QueryMeta, error) {
		return c.api.Health().Connect(service, tag, passing, o)
	})
}

// HealthState reads all checks with a status, or all checks for "any".
func (c *Client) HealthState(ctx context.Context, state string, q Query) (HealthChecks, Meta, error) {
	return read(ctx, c, "read checks", state, q, func(o *api.QueryOptions) (HealthChecks, *api.QueryMeta, error) {
		return c.api.Health().State(state, o)
	})
}

// HealthNode reads all checks of a node.
func (c *Client) HealthNode(ctx context.Context, node string, q Query) (HealthChecks, Meta, error) {
	checks, meta, err := read(ctx, c, "read checks of node", node, q, func(o *api.QueryOptions) (HealthChecks, *api.QueryMeta, error) {
		return c.api.Health().Node(node, o)
	})
	h := fnv.New64a()
	for _, check := range checks {
		fmt.Fprintf(h, "%s %d\n", check.CheckID, check.ModifyIndex)
	}
	meta.Content = h.Sum64()
	return checks, meta, err
}

// CatalogServices reads the names of all services with their tags.
func (c *Client) CatalogServices(ctx context.Context, q Query) (map[string][]string, Meta, error) {
	return read(ctx, c, "list services", "", q, c.api.Catalog().Services)
}

// CatalogService reads the instances of a service, whatever their health.
func (c *Client) CatalogService(ctx context.Context, service, tag string, q Query) ([]*CatalogService, Meta, error) {
	return read(ctx, c, "read service", service, q, func(o *api.QueryOptions) ([]*CatalogService, *api.QueryMeta, error) {
		return c.api.Catalog().Service(service, tag, o)
	})
}

// CatalogNodes reads all nodes.
func (c *Client) CatalogNodes(ctx context.Context, q Query) ([]*Node, Meta, error) {
	return read(ctx, c, "list nodes", "", q, c.api.Catalog().Nodes)
}

// CatalogNode reads a node and its services. The result is nil if the node does
// not exist.
func (c *Client) CatalogNode(ctx context.Context, node string, q Query) (*CatalogNode, Meta, error) {
	return read(ctx, c, "read node", node, q, func(o *api.QueryOptions) (*CatalogNode, *api.QueryMeta, error) {
		return c.api.Catalog().Node(node, o)
	})
}

// Datacenters reads the names of all known datacenters, nearest first. It cannot
// block.
func (c *Client) Datacenters(ctx context.Context) ([]string, error) {
	v, _, err := read(ctx, c, "list datacenters", "", Query{}, raw[[]string](c, "/v1/catalog/datacenters"))
	return v, err
}

// CARoots reads the mesh's certificate authorities.
func (c *Client) CARoots(ctx context.Context, q Query) (*CARootList, Meta, error) {
	return read(ctx, c, "read mesh CA roots", "", q, c.api.Agent().ConnectCARoots)
}

// CALeaf reads the mesh certificate of a service from the local agent.
func (c *Client) CALeaf(ctx context.Context, service string, q Query) (*LeafCert, Meta, error) {
	return read(ctx, c, "read mesh certificate", service, q, func(o *api.QueryOptions) (*LeafCert, *api.QueryMeta, error) {
		return c.api.Agent().ConnectCALeaf(service, o)
	})
}

// Leader reads the address of the current Raft leader; it is empty while Consul
// has no leader.
func (c *Client) Leader(ctx context.Context) (string, error) {
	v, _, err := read(ctx, c, "read the Raft leader", "", Query{}, raw[string](c, "/v1/status/leader"))
	return v, err
}
