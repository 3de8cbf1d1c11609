package consul

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"
)

// ACLsDisabled tells whether err says that this Consul has no ACLs.
func ACLsDisabled(err error) bool { return aclDisabled(err) }

// PolicyByName reads an ACL policy. The result is nil when there is none of
// that name.
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

// CreateToken makes an ACL token with policies, by name, that expires after
// ttl (1 minute to 24 hours; 0: never). Its secret is in the result and
// nowhere else.
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
