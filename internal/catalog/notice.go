package catalog

import (
	"context"
	"errors"

	"github.com/jorc/jorc/internal/consul"
)

// follow watches everything from which it shows that the agent's services are
// no longer what they were, each by a blocking query that only ever wakes
// reconcile:
//
//   - jorc's own service at the agent: the connection breaks when the agent
//     goes, and the service is unknown when it came back empty. This needs no
//     servers.
//   - the node's services in the catalog: somebody deregistered one.
//   - the node's checks in the catalog: what Consul's own checks found.
//
// A node that is followed already stays so.
func (r *Registrar) follow(ctx context.Context, node string) {
	if node == r.following {
		return
	}
	if r.unfollow != nil {
		r.unfollow()
	}
	ctx, r.unfollow = context.WithCancel(ctx)
	r.following = node
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (*consul.AgentService, consul.Meta, error) {
		return r.client.AgentService(ctx, PresenceID(r.o.Cluster), q)
	})
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (*consul.CatalogNode, consul.Meta, error) {
		return r.client.CatalogNode(ctx, node, q)
	})
	watchFor(ctx, r, func(ctx context.Context, q consul.Query) (consul.HealthChecks, consul.Meta, error) {
		return r.client.HealthNode(ctx, node, q)
	})
}

func watchFor[T any](ctx context.Context, r *Registrar, source consul.Source[T]) {
	r.wg.Go(func() {
		// It ends with ctx only, and has nothing to add then.
		_ = consul.Watch(ctx, r.client, consul.Query{}, source, func(u consul.Update[T]) {
			if !errors.Is(u.Err, consul.ErrDenied) {
				r.look()
			}
		})
	})
}
