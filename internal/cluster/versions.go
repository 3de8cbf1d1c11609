package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/kv"
)

// Running reads which versions run on any node, in order, with two requests. It
// returns consul.ErrDenied also when the token may see only a part, or
// consul.ErrUnreachable.
func (c *Cluster) RunningVersions(ctx context.Context) ([]string, error) {
	all, err := c.readReports(ctx)
	if err != nil {
		return nil, err
	}
	versions := map[string]bool{}
	for _, d := range all {
		versions[d.Version] = true
	}
	delete(versions, "")
	return slices.Sorted(maps.Keys(versions)), nil
}

// Hosts reads which nodes run version, in order, with two requests. It returns
// ErrBadName, or what Running returns.
func (c *Cluster) HostsRunning(ctx context.Context, version string) ([]string, error) {
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	all, err := c.readReports(ctx)
	if err != nil {
		return nil, err
	}
	return runningOn(all, version), nil
}

// runningOn returns the nodes that run version, in order.
func runningOn(all map[string]Report, version string) []string {
	hosts := []string{}
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if all[node].Version == version {
			hosts = append(hosts, node)
		}
	}
	return hosts
}

// readReports reads the documents of all nodes with one request, and asks at the same
// time whether the answer is whole. What cannot be read is left out.
func (c *Cluster) readReports(ctx context.Context) (map[string]Report, error) {
	leaves, err := both(ctx,
		func(ctx context.Context) error { return c.mayRead(ctx, PrefixReports) },
		func(ctx context.Context) (map[string]kv.Leaf[Report], error) { return c.reports.List(ctx) })
	if err != nil {
		return nil, err
	}
	all := make(map[string]Report, len(leaves))
	for node, leaf := range leaves {
		if leaf.Err == nil {
			all[node] = leaf.Value
		}
	}
	return all, nil
}

// Elsewhere is a host that does not run the version that it should.
type OtherHost struct {
	Host    string `json:"host"`
	Version string `json:"version"` // empty: none is known
}

// Verify returns those of hosts that do not run version, in order, and what
// they run. It returns ErrBadName, kv.ErrNewer, or what Running returns.
func (c *Cluster) HostsNotRunning(ctx context.Context, version string, hosts []string) ([]OtherHost, error) {
	for _, h := range hosts {
		if err := CheckNode(h); err != nil {
			return nil, err
		}
	}
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	reports, err := c.readReports(ctx)
	if err != nil {
		return nil, err
	}
	all := []OtherHost{}
	for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		if v := reports[h].Version; v != version {
			all = append(all, OtherHost{Host: h, Version: v})
		}
	}
	return all, nil
}

// Report reads what node reports; exists is false when it never did. It
// returns ErrBadName, kv.ErrDamaged, kv.ErrNewer, consul.ErrDenied or
// consul.ErrUnreachable.
func (c *Cluster) Report(ctx context.Context, node string) (d Report, exists bool, err error) {
	if err := CheckNode(node); err != nil {
		return Report{}, false, err
	}
	e, err := c.reports.At(node).Get(ctx)
	if err != nil {
		return Report{}, false, fmt.Errorf("what node %q reports: %w", node, err)
	}
	return e.Value, e.Exists, nil
}

// both asks at the same time whether the answer is whole, and for the answer.
func both[T any](ctx context.Context, allowed func(context.Context) error, ask func(context.Context) (T, error)) (T, error) {
	var answer, none T
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return allowed(ctx) })
	g.Go(func() (err error) {
		answer, err = ask(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return none, err
	}
	return answer, nil
}
