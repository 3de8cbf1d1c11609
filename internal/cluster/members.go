package cluster

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jorc/jorc/internal/profile"
)

// Member is one member as commands and filters show it.
type Member struct {
	Node       string            `json:"node"`
	Address    string            `json:"address"`
	Datacenter string            `json:"datacenter"`
	Zone       string            `json:"zone"`
	Roles      []string          `json:"roles"`  // derived ones last
	Params     profile.Params    `json:"params"` // its own; each role R shows as cluster/R = true
	Meta       profile.Params    `json:"meta"`
	NodeMeta   map[string]string `json:"node_meta"`
	Services   []string          `json:"services"`
	Version    string            `json:"version"`
	Status     map[string]string `json:"status"` // category → state
	Health     string            `json:"health"` // passing, warning, critical, maintenance; empty without a host
	Agent      string            `json:"agent"`  // up, down

	Provides []string      `json:"-"`
	Requires []Requirement `json:"-"`

	Condition Condition `json:"-"` // with NeedHealth and NeedAgent
}

// MembersOptions say which members to read and what of them.
type MembersOptions struct {
	Filter *Filter // nil: all
	Need   Need    // beside what the filter needs
	// Unreadable, if not nil, is told of documents that cannot be read, by key
	// below the cluster's: members whose records cannot be are left out then, who
	// leads counts as nobody, and what nodes report as nothing; that is no error.
	Unreadable func(key string, err error)
}

// Members reads the members that o.Filter matches, in order of their names,
// with at most six requests whatever their number. It returns kv.ErrDamaged or
// kv.ErrNewer for a document that cannot be read, if o.Unreadable is nil, or a
// class of package consul; consul.ErrDenied also when the token does not see
// everything that was asked for.
func (c *Cluster) Members(ctx context.Context, o MembersOptions) ([]Member, error) {
	need := o.Need
	if o.Filter != nil {
		need |= o.Filter.need
	}
	s, err := c.Load(ctx, need)
	if err != nil {
		return nil, err
	}
	if o.Unreadable != nil {
		s.Unreadable(o.Unreadable)
	} else if err := s.firstDamaged(); err != nil {
		return nil, err
	}
	return s.Members(o.Filter), nil
}

// MemberOf reads one member as Members shows it; what is read does not grow
// with their number. It returns ErrNoMember, or what Members returns.
func (c *Cluster) MemberOf(ctx context.Context, node string, need Need) (Member, error) {
	s, err := c.LoadHost(ctx, node, need)
	if err != nil {
		return Member{}, err
	}
	if err := cmp.Or(s.firstDamaged(), s.DamagedReport(node)); err != nil {
		return Member{}, err
	}
	h := s.Hosts[node]
	if !h.Member {
		return Member{}, fmt.Errorf("node %q in cluster %q: %w", node, c.name, ErrNoMember)
	}
	return s.member(h), nil
}

// Belongs reports whether the cluster's own filter, which d has, matches a
// member. It asks Consul only where there is a filter, and returns what MemberOf
// returns, or a *FilterError.
func (c *Cluster) Belongs(ctx context.Context, d profile.Document, node string) (bool, error) {
	f, err := filterOf(d)
	if err != nil || f.String() == "" {
		return err == nil, err
	}
	m, err := c.MemberOf(ctx, node, f.need)
	if err != nil {
		return false, err
	}
	return f.Match(&m), nil
}
