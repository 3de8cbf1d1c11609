package nodes

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
)

// lives reads the conditions of hosts, with three requests whatever their number.
func (l *Ledger) lives(ctx context.Context, hosts []string) (all map[string]cluster.Condition, err error) {
	if len(hosts) == 0 {
		return nil, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.maySeeCatalog(ctx) })
	g.Go(func() (err error) { all, err = l.model().Conditions(ctx, hosts); return err })
	return all, g.Wait()
}

// model is the cluster whose nodes report here.
func (l *Ledger) model() *cluster.Cluster { return cluster.New(l.client, l.prefix, l.cluster) }
