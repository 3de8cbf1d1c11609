package nodes

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
func (l *Ledger) Running(ctx context.Context) ([]string, error) {
	all, err := l.reports(ctx)
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
func (l *Ledger) Hosts(ctx context.Context, version string) ([]string, error) {
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	all, err := l.reports(ctx)
	if err != nil {
		return nil, err
	}
	return runningOn(all, version), nil
}

// runningOn returns the nodes that run version, in order.
func runningOn(all map[string]Document, version string) []string {
	hosts := []string{}
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if all[node].Version == version {
			hosts = append(hosts, node)
		}
	}
	return hosts
}

// reports reads the documents of all nodes with one request, and asks at the same
// time whether the answer is whole. What cannot be read is left out.
func (l *Ledger) reports(ctx context.Context) (map[string]Document, error) {
	leaves, err := both(ctx,
		func(ctx context.Context) error { return l.mayRead(ctx, keyNodes) },
		func(ctx context.Context) (map[string]kv.Leaf[Document], error) { return l.docs.List(ctx) })
	if err != nil {
		return nil, err
	}
	all := make(map[string]Document, len(leaves))
	for node, leaf := range leaves {
		if leaf.Err == nil {
			all[node] = leaf.Value
		}
	}
	return all, nil
}

// Elsewhere is a host that does not run the version that it should.
type Elsewhere struct {
	Host    string `json:"host"`
	Version string `json:"version"` // empty: none is known
}

// Verify returns those of hosts that do not run version, in order, and what
// they run. It returns ErrBadName, kv.ErrNewer, or what Running returns.
func (l *Ledger) Verify(ctx context.Context, version string, hosts []string) ([]Elsewhere, error) {
	for _, h := range hosts {
		if err := CheckNode(h); err != nil {
			return nil, err
		}
	}
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	reports, err := l.reports(ctx)
	if err != nil {
		return nil, err
	}
	all := []Elsewhere{}
	for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		if v := reports[h].Version; v != version {
			all = append(all, Elsewhere{Host: h, Version: v})
		}
	}
	return all, nil
}

// Document reads what node reports; exists is false when it never did. It
// returns ErrBadName, kv.ErrDamaged, kv.ErrNewer, consul.ErrDenied or
// consul.ErrUnreachable.
func (l *Ledger) Document(ctx context.Context, node string) (d Document, exists bool, err error) {
	if err := CheckNode(node); err != nil {
		return Document{}, false, err
	}
	e, err := l.docs.At(node).Get(ctx)
	if err != nil {
		return Document{}, false, fmt.Errorf("what node %q reports: %w", node, err)
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
