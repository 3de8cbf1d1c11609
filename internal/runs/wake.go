package runs

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// Wake calls wake when there may be something to decide about runs: somebody
// asked for one, or a node reports. It is called at the start, too, and by more
// than one goroutine, until ctx ends; then Wake returns ctx's error.
func (r *Runs) Wake(ctx context.Context, client *consul.Client, wake func()) error {
	return watchPaths(ctx, client, r.store, []string{strings.TrimSuffix(keyActive, "/"), strings.TrimSuffix(cluster.PrefixHosts, "/")}, wake)
}

// watchPaths calls wake when something at one of the keys, or below it, may
// have changed. What changed is not sent: with the slash as separator all of a
// directory is one name.
func watchPaths(ctx context.Context, client *consul.Client, store *kv.Store, paths []string, wake func()) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, path := range paths {
		names := func(ctx context.Context, q consul.Query) ([]string, consul.Meta, error) {
			return client.KVKeys(ctx, store.Path(path), "/", q)
		}
		g.Go(func() error {
			return consul.Watch(ctx, client, consul.Query{}, names, func(u consul.Update[[]string]) {
				if u.Err == nil {
					wake()
				}
			})
		})
	}
	return g.Wait()
}
