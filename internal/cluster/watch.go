package cluster

import (
	"context"

	"github.com/jorc/jorc/internal/kv"
)

// WatchRecord calls handle with what node says of itself, and whenever that
// changes, until ctx ends; that the node is no member is an entry that does not
// exist.
func (c *Cluster) WatchRecord(ctx context.Context, node string, handle func(kv.Update[Record])) error {
	return c.members.At(node).Watch(ctx, handle)
}

// WatchHold calls handle with the hold of node, and whenever that changes, until
// ctx ends.
func (c *Cluster) WatchHold(ctx context.Context, node string, handle func(kv.Update[Hold])) error {
	return c.holds.At(node).Watch(ctx, handle)
}

// RolesOf returns the roles of a node that says r of itself, with those that
// are derived behind them.
func (l Leaders) RolesOf(node string, r Record) []string { return l.rolesOf(node, r.Roles) }

// WatchLeaders calls handle with who leads, and whenever that changes, until ctx
// ends. Follow is for a node that acts on leading itself.
func (c *Cluster) WatchLeaders(ctx context.Context, handle func(kv.Update[Leaders])) error {
	return c.leaders.Watch(ctx, handle)
}
