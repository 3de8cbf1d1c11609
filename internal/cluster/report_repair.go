package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/kv"
)

// Repaired is what a pass over all nodes found and did.
type Repaired struct {
	Nodes   int      `json:"nodes"`   // with a document
	Fixed   []string `json:"fixed"`   // nodes whose index keys or document were not right
	Orphans []string `json:"orphans"` // nodes with index keys and no document: left alone
	Strange []string `json:"strange"` // keys that stand for nothing: left alone
}

// Repair puts right what somebody else wrote past the documents: three reads
// of all there is, and a few for each node that it fixes. Only writes that
// change something are made. It returns what Move returns.
func (c *Cluster) Repair(ctx context.Context) (Repaired, error) {
	r := Repaired{Fixed: []string{}, Orphans: []string{}, Strange: []string{}}
	documents, index, err := c.readAllReports(ctx, &r)
	if err != nil {
		return r, err
	}
	r.Nodes = len(documents)
	for _, node := range slices.Sorted(maps.Keys(index)) {
		if _, ok := documents[node]; !ok {
			r.Orphans = append(r.Orphans, node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(documents)) {
		leaf := documents[node]
		if errors.Is(leaf.Err, kv.ErrNewer) || CheckNode(node) != nil {
			r.Strange = append(r.Strange, PrefixReports+node)
			continue
		}
		want, d := indexOf(leaf.Value), leaf.Value
		if leaf.Err != nil {
			d = reportFromIndex(index[node])
			want = indexOf(d)
		}
		ops := indexWrites(node, index[node], want)
		if leaf.Err == nil && len(ops) == 0 {
			continue
		}
		if err := c.repairIndex(ctx, node, leaf, d, ops); err != nil {
			return r, err
		}
		r.Fixed = append(r.Fixed, node)
	}
	return r, nil
}

// repair carries out ops, as long as node's document stays as it was read; one
// that is damaged becomes d. What changed meanwhile is left to the next pass.
func (c *Cluster) repairIndex(ctx context.Context, node string, leaf kv.Leaf[Report], d Report, ops []indexWrite) error {
	doc := c.reports.At(node)
	t, index := c.store.Txn(), leaf.Index
	if leaf.Err != nil {
		doc.SwapIn(t, leaf.Entry, d)
	} else {
		t.CheckIndex(doc.Key(), index)
	}
	for {
		n := min(len(ops), kv.MaxOps-t.Len())
		for _, o := range ops[:n] {
			o.add(t)
		}
		ops = ops[n:]
		r, err := t.Commit(ctx)
		if errors.Is(err, kv.ErrConflict) {
			return nil // the node has just reported
		}
		if err != nil || len(ops) == 0 {
			return err
		}
		if now := r.Index(doc.Key()); now != 0 {
			index = now
		}
		t = c.store.Txn().CheckIndex(doc.Key(), index)
	}
}

// everything reads all documents, and all index keys by node.
func (c *Cluster) readAllReports(ctx context.Context, r *Repaired) (map[string]kv.Leaf[Report], map[string]map[indexPlace]string, error) {
	var documents map[string]kv.Leaf[Report]
	var running, status map[string]kv.Leaf[string]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { documents, err = c.reports.List(ctx); return err })
	g.Go(func() (err error) { running, err = kv.NewTextTree(c.store, PrefixRunning).List(ctx); return err })
	g.Go(func() (err error) { status, err = kv.NewTextTree(c.store, PrefixStatus).List(ctx); return err })
	g.Go(func() error { return c.mayRead(ctx, PrefixReports, PrefixRunning, PrefixStatus) })
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	index := map[string]map[indexPlace]string{}
	for prefix, tree := range map[string]map[string]kv.Leaf[string]{PrefixRunning: running, PrefixStatus: status} {
		for name, leaf := range tree {
			s, node, ok := parseIndexKey(prefix + name)
			if !ok {
				r.Strange = append(r.Strange, prefix+name)
				continue
			}
			if index[node] == nil {
				index[node] = map[indexPlace]string{}
			}
			index[node][s] = leaf.Value
		}
	}
	slices.Sort(r.Strange)
	return documents, index, nil
}
