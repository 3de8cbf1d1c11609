package cluster

import (
	"context"
	"slices"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

// Profile reads the profile with one request. It returns ErrNoCluster when
// the profile does not exist, or what kv.Doc.Get returns.
func (c *Cluster) Profile(ctx context.Context) (profile.Document, error) {
	e, err := c.profile.Get(ctx)
	if err == nil && !e.Exists {
		err = c.missing(ctx)
	}
	return e.Value, err
}

// Exists reports whether the cluster has a profile.
func (c *Cluster) Exists(ctx context.Context) (bool, error) {
	e, err := c.profile.Get(ctx)
	return e.Exists, err
}

// Change makes the next document from one; what it returns is written when it
// differs. It may be asked more than once.
type Change func(e *profile.Editor, d profile.Document) (profile.Document, error)

// ChangeProfile reads the profile, asks change for its successor and writes
// that, again until no other process wrote in between; it writes nothing when
// nothing changed. It returns the profile as it is now, or change's error
// (nothing was written then), ErrNoCluster, consul.ErrOutcomeUnknown,
// consul.ErrTooLarge or another class of package consul.
func (c *Cluster) ChangeProfile(ctx context.Context, change Change) (profile.Document, error) {
	e, err := c.profile.Update(ctx, func(old kv.Entry[profile.Document]) (profile.Document, bool, error) {
		if !old.Exists {
			return profile.Document{}, false, c.missing(ctx)
		}
		next, err := change(c.editor, old.Value)
		if err != nil {
			return profile.Document{}, false, err
		}
		return next, !next.Identical(old.Value), nil
	})
	return e.Value, err
}

// WatchProfile calls handle with the profile, and whenever it changes, until
// ctx ends.
func (c *Cluster) WatchProfile(ctx context.Context, handle func(kv.Update[profile.Document])) error {
	return c.profile.Watch(ctx, handle)
}

// Set sets a param of the cluster, or of a role, if ref holds now. Other
// changes at the same time never make it fail. It returns a
// *profile.MismatchError when ref does not hold, else what ChangeProfile does.
func (c *Cluster) Set(ctx context.Context, s profile.Scope, key string, v profile.Value, ref profile.Ref) (profile.Document, error) {
	return c.ChangeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Set(d, s, key, v, ref)
	})
}

// Remove removes a param as Set sets one; that it is gone already is not an error.
func (c *Cluster) Remove(ctx context.Context, s profile.Scope, key string, ref profile.Ref) (profile.Document, error) {
	return c.ChangeProfile(ctx, func(e *profile.Editor, d profile.Document) (profile.Document, error) {
		return e.Remove(d, s, key, ref)
	})
}

// View is what one member's params come from, read at one moment.
type View struct {
	Profile profile.Document
	Node    string
	Record  Record
	Member  bool // the node is a member
	Leaders Leaders
}

// Roles returns the member's roles, derived ones last; a node that is not a member
// has none.
func (v View) Roles() []string {
	if !v.Member {
		return nil
	}
	return v.Leaders.rolesOf(v.Node, v.Record.Roles)
}

// Effective returns the effective params of the member, among them one for each
// of its roles, as Member.Params has them; compose merges objects. cluster/leader
// and cluster/manager are false for a member without that role.
func (v View) Effective(compose bool) profile.Effective {
	layers := v.Profile.Effective
	if compose {
		layers = v.Profile.Compose
	}
	roles := v.Roles()
	effective := layers(roles, derive(v.Record.Params, roles))
	for _, key := range underived(roles) {
		delete(effective, key)
	}
	for _, role := range []string{RoleLeader, RoleManager} {
		if !slices.Contains(roles, role) {
			effective[roleParam(role)] = profile.Resolved{Value: profile.Bool(false), Sources: []profile.Source{{Layer: profile.FromDefault}}}
		}
	}
	return effective
}

// View reads what node's params come from, with one request. That the node is
// no member is not an error: it has the cluster's params. It returns ErrNoCluster
// when there is no profile.
func (c *Cluster) View(ctx context.Context, node string) (View, error) {
	v := View{Node: node}
	member := c.members.At(node)
	r, err := c.store.Txn().Get(KeyProfile).Get(KeyLeaders).Get(member.Key()).Commit(ctx)
	if err != nil {
		return v, err
	}
	p, err := c.profile.From(r)
	if err != nil {
		return v, err
	}
	l, err := c.leaders.From(r)
	if err != nil {
		return v, err
	}
	m, err := member.From(r)
	if err != nil {
		return v, err
	}
	v.Profile, v.Leaders, v.Record, v.Member = p.Value, l.Value, m.Value, m.Exists
	if !p.Exists {
		return v, c.missing(ctx)
	}
	return v, nil
}
