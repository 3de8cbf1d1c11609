package nodes

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Running reads which versions run on any node, in order: two requests, and an
// answer that grows with the versions. It returns consul.ErrDenied also when
// the token may see only a part, or consul.ErrUnreachable.
func (l *Ledger) Running(ctx context.Context) ([]string, error) {
	return both(ctx,
		func(ctx context.Context) error { return l.mayRead(ctx, keyRunning) },
		func(ctx context.Context) ([]string, error) { return l.segments(ctx, keyRunning) })
}

// Hosts reads which nodes run version, in order, with two requests. It returns
// ErrBadName, or what Running returns.
func (l *Ledger) Hosts(ctx context.Context, version string) ([]string, error) {
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	return both(ctx,
		func(ctx context.Context) error { return l.mayRead(ctx, keyRunning+version+"/") },
		func(ctx context.Context) ([]string, error) { return l.leaves(ctx, keyRunning+version+"/") })
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
	there, err := l.Hosts(ctx, version)
	if err != nil {
		return nil, err
	}
	missing := slices.Compact(slices.Sorted(slices.Values(hosts)))
	missing = slices.DeleteFunc(missing, func(h string) bool {
		_, found := slices.BinarySearch(there, h)
		return found
	})
	documents, err := l.documents(ctx, missing)
	if err != nil {
		return nil, err
	}
	all := []Elsewhere{}
	for _, h := range missing {
		e := Elsewhere{Host: h, Version: documents[h].Version}
		if e.Version == version { // it arrived meanwhile, or the index key is missing
			continue
		}
		all = append(all, e)
	}
	return all, nil
}

// documents reads the documents of some nodes; what cannot be read is empty.
func (l *Ledger) documents(ctx context.Context, nodes []string) (map[string]Document, error) {
	keys := make([]string, len(nodes))
	for i, n := range nodes {
		keys[i] = l.docs.At(n).Key()
	}
	results, err := l.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	documents := make(map[string]Document, len(nodes))
	for i, n := range nodes {
		if e, err := l.docs.At(n).From(results[keys[i]]); err == nil {
			documents[n] = e.Value
		}
	}
	return documents, nil
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
