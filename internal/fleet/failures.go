package fleet

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
)

// Failures reads which hosts are in state failed, and which checks are
// critical; with warnings also checks in state warning and successes that are
// suspect. Checks of hosts that belong to other clusters are left out, and
// maintenance that jorc itself began. The number of requests does not grow with that
// of hosts. It returns
// consul.ErrDenied also when the token may see only a part, kv.ErrNewer, or
// consul.ErrUnreachable.
func (c *Cluster) Failures(ctx context.Context, warnings bool) ([]cluster.Failure, error) {
	var s cluster.State
	var checks []cluster.Failure
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.maySeeCatalog(gctx) })
	g.Go(func() (err error) { s, err = c.LoadReports(gctx); return err })
	g.Go(func() (err error) { checks, err = c.failingChecks(gctx, warnings); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := append(s.FailedStates(warnings), checks...)
	slices.SortFunc(all, func(a, b cluster.Failure) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.State, b.State))
	})
	return all, nil
}

// failingChecks reads the checks that are critical, or in state warning.
func (c *Cluster) failingChecks(ctx context.Context, warnings bool) ([]cluster.Failure, error) {
	checks, err := whole(c.client.HealthState(ctx, consul.HealthCritical, consul.Query{}))
	if err == nil && warnings {
		var more consul.HealthChecks
		more, err = whole(c.client.HealthState(ctx, consul.HealthWarning, consul.Query{}))
		checks = append(checks, more...)
	}
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, c := range checks {
		hosts = append(hosts, c.Node)
	}
	slices.Sort(hosts)
	foreign, err := c.foreign(ctx, slices.Compact(hosts))
	if err != nil {
		return nil, err
	}
	var all []cluster.Failure
	for _, c := range checks {
		if f, ok := failureOf(c); ok && !foreign[c.Node] {
			all = append(all, f)
		}
	}
	return all, nil
}

// failureOf reads a check; ok is false for maintenance that jorc itself began.
func failureOf(c *consul.HealthCheck) (f cluster.Failure, ok bool) {
	f = cluster.Failure{Host: c.Node, Kind: cluster.FailureCheck, Name: c.Name, State: c.Status, Service: c.ServiceID, Detail: strings.TrimSpace(c.Output)}
	if consul.IsMaintenance(c.CheckID) {
		f.State, f.Detail = consul.HealthMaint, c.Notes
		return f, !consul.StartedByJorc(c.Notes)
	}
	return f, true
}

// foreign tells which of hosts are known to other clusters below the prefix
// and not to this one. Clusters that the token may not read are not asked.
func (c *Cluster) foreign(ctx context.Context, hosts []string) (map[string]bool, error) {
	if c.name == "" || len(hosts) == 0 {
		return nil, nil // the clusters' keys cannot be distinguished from others
	}
	root := New(c.client, c.prefix, "")
	clusters, _, err := c.client.KVKeys(ctx, root.store.Path(""), "/", consul.Query{})
	if err != nil {
		return nil, err
	}
	own, err := root.knownTo(ctx, hosts, []string{c.name + "/"})
	if err != nil {
		return nil, err
	}
	others := clusters[:0]
	for _, path := range clusters {
		name := strings.TrimPrefix(path, root.store.Path(""))
		if strings.HasSuffix(name, "/") && name != "/" && name != c.name+"/" {
			others = append(others, name)
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return own[h] })
	return root.knownTo(ctx, unknown, others)
}

// knownTo tells which of hosts are members of, or report to, one of clusters
// (each with a slash at its end).
func (c *Cluster) knownTo(ctx context.Context, hosts, clusters []string) (map[string]bool, error) {
	var keys []string
	host := map[string]string{}
	for _, name := range clusters {
		for _, h := range hosts {
			for _, key := range []string{name + cluster.MemberKey(h), name + cluster.ReportKey(h)} {
				keys, host[key] = append(keys, key), h
			}
		}
	}
	results, err := c.readKeys(ctx, keys)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, key := range keys {
		if results[key].Index(key) != 0 {
			known[host[key]] = true
		}
	}
	return known, nil
}

// Unaccounted reads which provisioned hosts do not do their part; ttl is as for
// State.Unaccounted. It returns consul.ErrDenied also when the token may see only
// a part, or consul.ErrUnreachable.
func (c *Cluster) Unaccounted(ctx context.Context, ttl map[string]time.Duration) ([]cluster.Unaccounted, error) {
	var s cluster.State
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.mayRead(gctx, cluster.PrefixReports, cluster.PrefixHosts, cluster.KeyProfile) })
	g.Go(func() error { return c.maySeeCatalog(gctx) })
	g.Go(func() (err error) {
		s, err = c.Load(gctx, cluster.NeedReports|cluster.NeedAgent|cluster.NeedLiveness|cluster.NeedProfile)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s.Unaccounted(ttl, now()), nil
}
