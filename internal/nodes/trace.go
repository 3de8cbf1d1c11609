package nodes

import (
	"context"
	"errors"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

// slot is the place of a state's index keys: running_version/<name>/ has no
// category.
type slot struct{ category, name string }

func (s slot) key(node string) string {
	if s.category == "" {
		return runningKey(s.name, node)
	}
	return statusKey(s.category, s.name, node)
}

// traces are a node's document and all index keys that name the node.
type traces struct {
	doc     kv.Entry[Document]
	damaged bool // the document holds something else, and doc.Value is empty
	desired string
	index   map[slot]kv.Entry[string]
}

// trace reads the traces of node. What it costs grows with the number of
// versions that run and of categories, not with that of nodes.
func (l *Ledger) trace(ctx context.Context, node string) (traces, error) {
	slots, err := l.slots(ctx)
	if err != nil {
		return traces{}, err
	}
	t := traces{index: map[slot]kv.Entry[string]{}}
	doc := l.docs.At(node)
	keys := []string{doc.Key(), keyDesired}
	for _, s := range slots {
		keys = append(keys, s.key(node))
	}
	results, err := l.read(ctx, keys)
	if err != nil {
		return traces{}, err
	}
	t.doc, err = doc.From(results[doc.Key()])
	if errors.Is(err, kv.ErrDamaged) {
		t.damaged, err = true, nil
		t.doc.Value = Document{}
	}
	if err != nil {
		return traces{}, err
	}
	if e, err := l.desired.From(results[keyDesired]); err == nil { // states can do without
		t.desired = strings.TrimSpace(e.Value)
	}
	for _, s := range slots {
		key := s.key(node)
		e, err := kv.NewText(l.store, key).From(results[key])
		if err != nil {
			return traces{}, err
		}
		if e.Exists {
			t.index[s] = e
		}
	}
	return t, nil
}

// read reads keys, as many as a transaction takes at a time, and returns the
// result that holds each.
func (l *Ledger) read(ctx context.Context, keys []string) (map[string]*kv.Result, error) {
	results := make(map[string]*kv.Result, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), kv.MaxOps)
		t := l.store.Txn()
		for _, key := range keys[:n] {
			t.Get(key)
		}
		r, err := t.Commit(ctx)
		if err != nil {
			return nil, err
		}
		for _, key := range keys[:n] {
			results[key] = r
		}
		keys = keys[n:]
	}
	return results, nil
}

// listSlots reads which places of index keys there are, for any node.
func (l *Ledger) listSlots(ctx context.Context) ([]slot, error) {
	var mu sync.Mutex
	var slots []slot
	add := func(category string, names []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			slots = append(slots, slot{category, name})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		names, err := l.segments(ctx, keyRunning)
		add("", names)
		return err
	})
	categories, err := l.segments(ctx, keyStatus)
	for _, c := range categories {
		g.Go(func() error {
			names, err := l.segments(ctx, keyStatus+c+"/")
			add(c, names)
			return err
		})
	}
	if failed := g.Wait(); err == nil {
		err = failed
	}
	return slots, err
}

// segments reads the names that stand directly below prefix and have something
// below them, in order. Names that are no segment of a key are left out:
// jorc did not make them.
func (l *Ledger) segments(ctx context.Context, prefix string) ([]string, error) {
	keys, meta, err := l.client.KVKeys(ctx, l.store.Path(prefix), "/", consul.Query{})
	if err == nil && meta.Filtered {
		err = l.filtered(prefix)
	}
	if err != nil {
		return nil, err
	}
	names := keys[:0]
	for _, key := range keys {
		name, dir := strings.CutSuffix(strings.TrimPrefix(key, l.store.Path(prefix)), "/")
		if dir && name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// leaves reads the names that stand directly below prefix and have nothing
// below them, in order.
func (l *Ledger) leaves(ctx context.Context, prefix string) ([]string, error) {
	keys, meta, err := l.client.KVKeys(ctx, l.store.Path(prefix), "/", consul.Query{})
	if err == nil && meta.Filtered {
		err = l.filtered(prefix)
	}
	if err != nil {
		return nil, err
	}
	names := keys[:0]
	for _, key := range keys {
		if name := strings.TrimPrefix(key, l.store.Path(prefix)); name != "" && !strings.HasSuffix(name, "/") {
			names = append(names, name)
		}
	}
	return names, nil
}

var errHidden = errors.New("the token may not see all of it")

func (l *Ledger) filtered(prefix string) error {
	return &consul.Error{Op: "list keys", Name: l.store.Path(prefix), Class: consul.ErrDenied, Err: errHidden}
}
