package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/consul"
)

// Bounds and default of a token's life.
const (
	MinTokenTTL     = time.Minute
	MaxTokenTTL     = 24 * time.Hour
	DefaultTokenTTL = 2 * time.Hour
)

// Token is an ACL token. String and logs leave out its secret.
type Token struct {
	Accessor string
	Secret   string
	Expires  time.Time
}

func (t Token) String() string { return "token " + t.Accessor }

// GoString keeps the secret out of %#v.
func (t Token) GoString() string { return t.String() }

// ProfileToken makes an ACL token for a job: it may write this cluster's profile
// and nothing else, read what members, leaders and runs are, and expires after
// ttl (0: 2 hours). It returns
// ErrInvalid for a ttl that Consul does not take, ErrNoACLs, consul.ErrDenied
// when the caller lacks acl:write, or another class of package consul.
func (c *Cluster) ProfileToken(ctx context.Context, ttl time.Duration) (Token, error) {
	if ttl == 0 {
		ttl = DefaultTokenTTL
	}
	if ttl < MinTokenTTL || ttl > MaxTokenTTL {
		return Token{}, fmt.Errorf("a token that lives %v: %w: Consul takes %v to %v", ttl, ErrInvalid, MinTokenTTL, MaxTokenTTL)
	}
	t, err := c.mint(ctx, ttl)
	if err != nil {
		return Token{}, c.mintError(err)
	}
	return t, nil
}

func (c *Cluster) mint(ctx context.Context, ttl time.Duration) (Token, error) {
	p := Policy{
		Name:        policyName("profile", c.prefix, c.name),
		Description: fmt.Sprintf("jorc: the profile of cluster %q", c.name),
		Rules:       policyText(slices.Concat(c.readRules(), c.keyRules(KindProfile, ""))),
	}
	if _, err := PutPolicy(ctx, c.client, p); err != nil {
		return Token{}, err
	}
	t, err := c.client.CreateToken(ctx, p.Description, ttl, p.Name)
	if err != nil {
		return Token{}, err
	}
	token := Token{Accessor: t.AccessorID, Secret: t.SecretID}
	if t.ExpirationTime != nil {
		token.Expires = *t.ExpirationTime
	}
	return token, nil
}

func (c *Cluster) mintError(err error) error {
	switch {
	case consul.ACLsDisabled(err):
		return fmt.Errorf("make a token for the profile of cluster %q: %w: none is needed", c.name, ErrNoACLs)
	case errors.Is(err, consul.ErrDenied):
		return fmt.Errorf("make a token for the profile of cluster %q: only callers with acl:write can: "+
			"let one of them put a token into a file and give that to the task as its token_file: %w", c.name, err)
	}
	return fmt.Errorf("make a token for the profile of cluster %q: %w", c.name, err)
}

// PutPolicy creates Consul's policy of p's name, or updates it if its rules differ
// from p's; changed reports whether it wrote.
func PutPolicy(ctx context.Context, client *consul.Client, p Policy) (changed bool, err error) {
	have, err := client.PolicyByName(ctx, p.Name, consul.Query{})
	if err != nil {
		return false, err
	}
	next := consul.ACLPolicy{Name: p.Name, Description: p.Description, Rules: p.Rules}
	if have != nil {
		if strings.TrimSpace(have.Rules) == strings.TrimSpace(p.Rules) {
			return false, nil
		}
		next.ID = have.ID
	}
	_, err = client.PutPolicy(ctx, &next)
	if err != nil && have == nil {
		// Another process may have created it meanwhile.
		if now, again := client.PolicyByName(ctx, p.Name, consul.Query{Consistent: true}); again == nil && now != nil {
			return false, nil
		}
	}
	return err == nil, err
}
