package cluster

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Watched is a cluster as the agent on one node watches it: one blocking query on
// what all nodes watch, and one on what that node does. All watches of such keys
// through Cluster share them.
type Watched struct {
	*Cluster

	current, host *kv.Shared
}

// WatchedBy returns the cluster as the agent on node watches it. Its watches
// wait until Run runs.
func (c *Cluster) WatchedBy(node string) *Watched {
	w := &Watched{current: kv.NewShared(c.store, PrefixCurrent), host: kv.NewShared(c.store, HostPrefix(node))}
	w.Cluster = c.In(c.store.Sharing(w.current, w.host))
	return w
}

// Run asks Consul until ctx ends; then it returns ctx's error.
func (w *Watched) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.current.Run(ctx) })
	g.Go(func() error { return w.host.Run(ctx) })
	return g.Wait()
}

// AwaitLayout returns nil once the cluster's keys have the layout that this jorc
// reads, or ctx's error. A cluster that has none yet is given it, where the token
// may do so. wrong is called with ErrLayout, or why the layout is not known, when
// that changes.
func (w *Watched) AwaitLayout(ctx context.Context, wrong func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	good, reported := false, ""
	err := w.current.Pairs(ctx, func(pairs consul.KVPairs, err error) {
		if err == nil {
			err = w.layoutIn(ctx, pairs)
		}
		switch {
		case err == nil:
			good = true
			cancel()
		case ctx.Err() == nil && err.Error() != reported:
			reported = err.Error()
			wrong(err)
		}
	})
	if good {
		return nil
	}
	return err
}

// layoutIn checks the layout among pairs, and writes it where it is missing in a
// cluster without keys of another one.
func (w *Watched) layoutIn(ctx context.Context, pairs consul.KVPairs) error {
	doc := kv.NewText(w.store, KeyLayout)
	e, err := doc.Find(pairs)
	if err != nil || e.Exists {
		return cmp.Or(err, w.checkLayout(e.Value, true, false))
	}
	if err := w.CheckLayout(ctx); err != nil {
		return err
	}
	_, err = doc.CompareAndSwap(ctx, e, strconv.Itoa(Layout))
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, consul.ErrDenied) {
		return nil // another has written it, or the next operator does
	}
	return err
}

// WatchRecord calls handle with what node says of itself, and whenever that
// changes, until ctx ends; that the node is not a member is an entry that does not
// exist.
func (c *Cluster) WatchRecord(ctx context.Context, node string, handle func(kv.Update[Record])) error {
	return c.members.At(node).Watch(ctx, handle)
}

// WatchHold calls handle with the hold of node, and whenever that changes, until
// ctx ends.
func (c *Cluster) WatchHold(ctx context.Context, node string, handle func(kv.Update[Hold])) error {
	return c.holds.At(node).Watch(ctx, handle)
}

// RolesOf returns the roles of a node that says r of itself, with the ones that
// are derived behind them.
func (l Leaders) RolesOf(node string, r Record) []string { return l.rolesOf(node, r.Roles) }

// WatchLeaders calls handle with who leads, and whenever that changes, until ctx
// ends. Follow is for a node that acts on leading itself.
func (c *Cluster) WatchLeaders(ctx context.Context, handle func(kv.Update[Leaders])) error {
	return c.leaders.Watch(ctx, handle)
}
