package consul

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

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
	AccessorID  string
	Description string
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

// Authorize reports for each of the rights whether the client's token has it.
// Without ACLs it has all of them.
func (c *Client) Authorize(ctx context.Context, rights ...Right) ([]bool, error) {
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
