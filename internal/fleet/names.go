package fleet

import (
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// ClusterNames returns the clusters below prefix, with one request for the names of
// keys at the first level.
func ClusterNames(ctx context.Context, client *consul.Client, prefix string) ([]string, error) {
	return branches(ctx, client, strings.Trim(prefix, "/")+"/")
}

// HostNames returns the members and the hosts that have reported something, with
// two requests for the names of keys.
func (c *Cluster) HostNames(ctx context.Context) ([]string, error) {
	return c.union(ctx, cluster.PrefixHosts, cluster.PrefixReports)
}

// VersionNames returns the running versions, as the projection for foreign readers
// has them, and the desired one, with two requests.
func (c *Cluster) VersionNames(ctx context.Context) ([]string, error) {
	names, err := c.union(ctx, cluster.PrefixRunning)
	if err != nil {
		return nil, err
	}
	desired, err := c.Desired(ctx)
	if desired != "" && !slices.Contains(names, desired) {
		names = append(names, desired)
	}
	return names, err
}

// RoleNames returns the roles that a member has, that the profile has params for or
// that are held, and the ones that jorc knows. It reads all member records.
func (c *Cluster) RoleNames(ctx context.Context) ([]string, error) {
	s, err := c.Load(ctx, cluster.NeedProfile|cluster.NeedControl)
	if err != nil {
		return nil, err
	}
	known := append([]string{cluster.RoleManager, cluster.RoleLeader, cluster.RoleWorker}, slices.Collect(maps.Keys(s.Profile.Roles))...)
	known = append(known, slices.Collect(maps.Keys(s.Control.Roles))...)
	for _, h := range s.Hosts {
		known = append(known, h.Record.Roles...)
	}
	return known, nil
}

// ZoneNames returns the zones of members. It reads all member records.
func (c *Cluster) ZoneNames(ctx context.Context) ([]string, error) {
	s, err := c.Load(ctx, 0)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, h := range s.Hosts {
		if h.Record.Zone != "" {
			known = append(known, h.Record.Zone)
		}
	}
	return known, nil
}

// WorkflowNames returns the workflows that hosts of members define, as far as their
// records say so. It reads all member records.
func (c *Cluster) WorkflowNames(ctx context.Context) ([]string, error) {
	s, err := c.Load(ctx, 0)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, h := range s.Hosts {
		known = append(known, h.Record.Workflows...)
	}
	return known, nil
}

// union returns the names that keys have directly below the given prefixes.
func (c *Cluster) union(ctx context.Context, prefixes ...string) ([]string, error) {
	found := make([][]string, len(prefixes))
	g, ctx := errgroup.WithContext(ctx)
	for i, prefix := range prefixes {
		g.Go(func() (err error) {
			found[i], err = branches(ctx, c.client, c.store.Path(prefix))
			return err
		})
	}
	err := g.Wait()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(found...)))), err
}

// branches returns the names that keys have directly below prefix.
func branches(ctx context.Context, client *consul.Client, prefix string) ([]string, error) {
	keys, _, err := client.KVKeys(ctx, prefix, "/", consul.Query{})
	for i, key := range keys {
		keys[i] = strings.TrimSuffix(strings.TrimPrefix(key, prefix), "/")
	}
	return slices.DeleteFunc(keys, func(name string) bool { return name == "" }), err
}
