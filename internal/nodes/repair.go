package nodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

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
func (l *Ledger) Repair(ctx context.Context) (Repaired, error) {
	r := Repaired{Fixed: []string{}, Orphans: []string{}, Strange: []string{}}
	documents, index, err := l.everything(ctx, &r)
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
			r.Strange = append(r.Strange, keyNodes+node)
			continue
		}
		t := traces{doc: leaf.Entry, index: index[node]}
		ops, _ := t.plan(node, t.known())
		if leaf.Err == nil && len(ops) == 0 && t.known().Equal(t.doc.Value) {
			continue
		}
		if _, err := l.Move(ctx, node, func(d Document, _ string) (Document, error) { return d, nil }); err != nil {
			return r, err
		}
		r.Fixed = append(r.Fixed, node)
	}
	return r, nil
}

// everything reads all documents, and all index keys by node.
func (l *Ledger) everything(ctx context.Context, r *Repaired) (map[string]kv.Leaf[Document], map[string]map[slot]kv.Entry[string], error) {
	var documents map[string]kv.Leaf[Document]
	var running, status map[string]kv.Leaf[string]
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { documents, err = l.docs.List(ctx); return err })
	g.Go(func() (err error) { running, err = kv.NewTextTree(l.store, keyRunning).List(ctx); return err })
	g.Go(func() (err error) { status, err = kv.NewTextTree(l.store, keyStatus).List(ctx); return err })
	g.Go(func() error { return l.mayRead(ctx, keyNodes, keyRunning, keyStatus) })
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	index := map[string]map[slot]kv.Entry[string]{}
	add := func(key string, s slot, node string, e kv.Entry[string]) {
		if CheckNode(node) != nil || s.name == "" {
			r.Strange = append(r.Strange, key)
			return
		}
		if index[node] == nil {
			index[node] = map[slot]kv.Entry[string]{}
		}
		index[node][s] = e
	}
	for name, leaf := range running {
		version, node, _ := strings.Cut(name, "/")
		add(keyRunning+name, slot{"", version}, node, leaf.Entry)
	}
	for name, leaf := range status {
		category, rest, _ := strings.Cut(name, "/")
		state, node, _ := strings.Cut(rest, "/")
		if category == "" {
			state = ""
		}
		add(keyStatus+name, slot{category, state}, node, leaf.Entry)
	}
	slices.Sort(r.Strange)
	return documents, index, nil
}
