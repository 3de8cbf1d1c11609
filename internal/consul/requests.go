package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

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

// KVList reads all pairs whose keys begin with prefix, in order of keys. The pairs share
// their memory: copy what you keep of some of them.
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

// PrepareServices makes the decoder of HealthService ready. The first use in a process
// takes most of a millisecond. A wait for a service does it before the answer that ends it.
func PrepareServices() {
	const sample = `[{"Node":{},"Service":{"Weights":{},"Proxy":{"MeshGateway":{},"Expose":{}},"Connect":{}},"Checks":[{"Definition":{}}]}]`
	if err := json.Unmarshal([]byte(sample), new([]*ServiceEntry)); err != nil {
		panic(fmt.Sprintf("decode a sample of Consul's answers: %v", err))
	}
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

// KVPut writes one key unconditionally, with the flags and session of p.
func (c *Client) KVPut(ctx context.Context, p *KVPair) error {
	return c.writeOnly(ctx, "write key", p.Key, func(ctx context.Context) error {
		_, err := c.api.KV().Put(p, writeOptions(ctx))
		return err
	})
}

// KVCAS writes one key if its index is p.ModifyIndex; 0 means that the key does
// not exist. It reports whether it wrote.
func (c *Client) KVCAS(ctx context.Context, p *KVPair) (bool, error) {
	return write(ctx, c, "write key", p.Key, func(ctx context.Context) (bool, error) {
		ok, _, err := c.api.KV().CAS(p, writeOptions(ctx))
		return ok, err
	})
}

// KVDeleteCAS deletes one key if its index is index. It reports whether
// it deleted.
func (c *Client) KVDeleteCAS(ctx context.Context, key string, index uint64) (bool, error) {
	return write(ctx, c, "delete key", key, func(ctx context.Context) (bool, error) {
		ok, _, err := c.api.KV().DeleteCAS(&KVPair{Key: key, ModifyIndex: index}, writeOptions(ctx))
		return ok, err
	})
}

// KVDeleteTree deletes all keys below prefix.
func (c *Client) KVDeleteTree(ctx context.Context, prefix string) error {
	return c.writeOnly(ctx, "delete keys", prefix, func(ctx context.Context) error {
		_, err := c.api.KV().DeleteTree(prefix, writeOptions(ctx))
		return err
	})
}

// Txn carries out all operations or none. If Consul rolled back, ok is false and
// the response's Errors name the operations that failed.
func (c *Client) Txn(ctx context.Context, name string, ops TxnOps) (ok bool, resp *TxnResponse, err error) {
	resp, err = write(ctx, c, "transaction on", name, func(ctx context.Context) (*TxnResponse, error) {
		var r *TxnResponse
		ok, r, err = c.txn(ctx, ops, Query{})
		return r, err
	})
	return ok && err == nil, resp, err
}

// TxnRead carries out read-only operations at one moment. The response's Errors
// name the checks that failed.
func (c *Client) TxnRead(ctx context.Context, name string, ops TxnOps, q Query) (*TxnResponse, error) {
	resp, _, err := read(ctx, c, "read keys", name, q, func(o *api.QueryOptions) (*TxnResponse, *api.QueryMeta, error) {
		_, r, err := c.txn(o.Context(), ops, q)
		return r, nil, err
	})
	return resp, err
}

// txn sends a transaction. The API's own call hides the HTTP status of a refusal,
// which distinguishes "not carried out" from "outcome unknown"; Raw().Write has no
// consistent reads.
func (c *Client) txn(ctx context.Context, ops TxnOps, q Query) (ok bool, resp *TxnResponse, err error) {
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(ops); err != nil {
		return false, nil, err
	}
	resp = &TxnResponse{}
	params := c.parameters(&api.QueryOptions{RequireConsistent: q.Consistent})
	answer, err := c.send(ctx, http.MethodPut, "/v1/txn?"+params.Encode(), &body)
	var status api.StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return false, resp, json.Unmarshal([]byte(status.Body), resp)
	}
	if err != nil {
		return false, resp, err
	}
	defer answer.Body.Close()
	return true, resp, json.NewDecoder(answer.Body).Decode(resp)
}

// SessionCreate creates a session and returns its id. Without checks in s only
// its TTL ends it: no failing check, not even its node's, ends it early.
func (c *Client) SessionCreate(ctx context.Context, s *SessionEntry) (string, error) {
	return write(ctx, c, "create session", s.Name, func(ctx context.Context) (string, error) {
		create := c.api.Session().Create
		if len(s.Checks)+len(s.NodeChecks)+len(s.ServiceChecks) == 0 {
			create = c.api.Session().CreateNoChecks
		}
		id, _, err := create(s, writeOptions(ctx))
		return id, err
	})
}

// SessionRenew extends a session by its TTL and returns the TTL. ErrNotFound:
// the session has ended.
func (c *Client) SessionRenew(ctx context.Context, id string) (time.Duration, error) {
	return write(ctx, c, "renew session", id, func(ctx context.Context) (time.Duration, error) {
		var s []*SessionEntry
		_, err := c.api.Raw().Write("/v1/session/renew/"+id, nil, &s, writeOptions(ctx))
		if err != nil {
			return 0, err
		}
		if len(s) == 0 {
			return 0, &Error{Op: "renew session", Name: id, Class: ErrNotFound, Err: errNoSession}
		}
		return time.ParseDuration(s[0].TTL)
	})
}

// SessionDestroy ends a session; its locks are released.
func (c *Client) SessionDestroy(ctx context.Context, id string) error {
	return c.writeOnly(ctx, "destroy session", id, func(ctx context.Context) error {
		_, err := c.api.Session().Destroy(id, writeOptions(ctx))
		return err
	})
}

// ACLsDisabled reports whether err is that of a Consul without ACLs.
func ACLsDisabled(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && strings.Contains(status.Body, "ACL support disabled")
}

// PolicyByName reads an ACL policy. The result is nil if no policy has that
// name.
func (c *Client) PolicyByName(ctx context.Context, name string, q Query) (*ACLPolicy, error) {
	p, _, err := read(ctx, c, "read ACL policy", name, q, func(o *api.QueryOptions) (*ACLPolicy, *api.QueryMeta, error) {
		return c.api.ACL().PolicyReadByName(name, o)
	})
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return p, err
}

// PutPolicy creates an ACL policy, or replaces the one whose ID p has.
func (c *Client) PutPolicy(ctx context.Context, p *ACLPolicy) (*ACLPolicy, error) {
	return write(ctx, c, "write ACL policy", p.Name, func(ctx context.Context) (*ACLPolicy, error) {
		if p.ID != "" {
			out, _, err := c.api.ACL().PolicyUpdate(p, writeOptions(ctx))
			return out, err
		}
		out, _, err := c.api.ACL().PolicyCreate(p, writeOptions(ctx))
		return out, err
	})
}

// CreateToken creates an ACL token with the named policies that expires after
// ttl (1 minute to 24 hours; 0: never). Its secret is in the result and
// cannot be read again.
func (c *Client) CreateToken(ctx context.Context, description string, ttl time.Duration, policies ...string) (*ACLToken, error) {
	t := &ACLToken{Description: description, ExpirationTTL: ttl}
	for _, name := range policies {
		t.Policies = append(t.Policies, &ACLTokenPolicyLink{Name: name})
	}
	return write(ctx, c, "create ACL token", description, func(ctx context.Context) (*ACLToken, error) {
		out, _, err := c.api.ACL().TokenCreate(t, writeOptions(ctx))
		return out, err
	})
}

// TokenName identifies an ACL token without its secret.
type TokenName struct {
	AccessorID     string
	Description    string
	CreateTime     time.Time
	ExpirationTime time.Time // zero: it does not expire
}

// OwnToken returns which token the client uses.
func (c *Client) OwnToken(ctx context.Context) (TokenName, error) {
	t, _, err := read(ctx, c, "read the own ACL token", "", Query{}, raw[TokenName](c, "/v1/acl/token/self"))
	return t, err
}

// Right is one access that an ACL token may have: Access to Segment of Resource.
type Right struct {
	Resource string // "key", "service", "node", "acl", …
	Access   string // "read", "write", "list"
	Segment  string // name; empty for resources without
}

// MaxAuthorize is how many rights Consul checks in one request.
const MaxAuthorize = 64

// Authorize reports for each of the rights whether the client's token has it, with one
// request for each MaxAuthorize of them. Without ACLs it has all of them.
func (c *Client) Authorize(ctx context.Context, rights ...Right) ([]bool, error) {
	allowed := make([]bool, 0, len(rights))
	for part := range slices.Chunk(rights, MaxAuthorize) {
		got, err := c.authorize(ctx, part)
		if err != nil {
			return nil, err
		}
		allowed = append(allowed, got...)
	}
	return allowed, nil
}

func (c *Client) authorize(ctx context.Context, rights []Right) ([]bool, error) {
	type answer struct{ Allow bool }
	got, _, err := read(ctx, c, "check ACL rights", "", Query{}, func(o *api.QueryOptions) ([]answer, *api.QueryMeta, error) {
		var out []answer
		err := c.post(o.Context(), "/v1/internal/acl/authorize", rights, &out)
		return out, nil, err
	})
	if ACLsDisabled(err) {
		got, err = make([]answer, len(rights)), nil
		for i := range got {
			got[i].Allow = true
		}
	}
	if err != nil {
		return nil, err
	}
	allowed := make([]bool, len(rights))
	for i := range min(len(got), len(rights)) {
		allowed[i] = got[i].Allow
	}
	return allowed, nil
}

// ACLsEnabled reports whether Consul runs with ACLs.
func (c *Client) ACLsEnabled(ctx context.Context) (bool, error) {
	_, _, err := read(ctx, c, "check ACL rights", "", Query{}, func(o *api.QueryOptions) (struct{}, *api.QueryMeta, error) {
		return struct{}{}, nil, c.post(o.Context(), "/v1/internal/acl/authorize", []Right{{Resource: "operator", Access: "read"}}, &[]struct{ Allow bool }{})
	})
	if ACLsDisabled(err) {
		return false, nil
	}
	return err == nil, err
}
