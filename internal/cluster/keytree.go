package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/consul"
)

// Bounds of a keyTree: the names of one leaf, and the requests at the same time.
const (
	namesInLeaf  = 80
	readsAtATime = 16
)

// keyTree finds out which nodes' keys below one prefix have changed. Consul has
// no stream of changes, but it tells for every byte prefix when a key with it
// last changed: the names are divided by prefixes, and only prefixes whose index
// is another are looked into.
type keyTree struct {
	cluster *Cluster
	prefix  string // of all keys, with a slash at its end
	index   uint64 // of prefix
	names   map[string]bool
	root    *keyBranch
}

// keyBranch is all names that begin with prefix.
type keyBranch struct {
	prefix   string
	index    uint64
	branches []*keyBranch // none: a leaf
}

// changedKeys are what changed below a keyTree.
type changedKeys struct {
	prefixes  []string // of names
	pairs     consul.KVPairs
	gone      map[string]bool // names without a key
	backwards bool            // the index is below the last one
}

func (c changedKeys) covers(name string) bool {
	return c.gone[name] || slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func newKeyTree(c *Cluster, prefix string) *keyTree { return &keyTree{cluster: c, prefix: prefix} }

// readAll reads all keys and begins again.
func (t *keyTree) readAll(ctx context.Context) (consul.KVPairs, error) {
	index, err := t.indexOf(ctx, strings.TrimSuffix(t.prefix, "/"))
	if err != nil {
		return nil, err
	}
	pairs, err := t.cluster.store.List(ctx, t.prefix)
	if err != nil {
		return nil, err
	}
	t.index = index
	t.divide(pairs)
	return pairs, nil
}

// indexOf returns when a key that begins with prefix last changed.
func (t *keyTree) indexOf(ctx context.Context, prefix string) (uint64, error) {
	_, index, err := t.keys(ctx, prefix)
	return index, err
}

// keys returns the keys that begin with prefix, cut after the next slash, and
// when one of them last changed.
func (t *keyTree) keys(ctx context.Context, prefix string) ([]string, uint64, error) {
	c := t.cluster
	q := consul.Query{Consistent: c.consistent}
	keys, meta, err := c.client.KVKeys(ctx, c.store.Path(prefix), "/", q)
	keys, err = whole(keys, meta, err)
	return keys, meta.Index, err
}

// divide makes the branches of the names in pairs. The index of a branch is that
// of its last write; a deletion may have a later one, which makes the branch be
// read once in vain.
func (t *keyTree) divide(pairs consul.KVPairs) {
	last := map[string]uint64{}
	t.names = map[string]bool{}
	for _, p := range pairs {
		name, _, _ := strings.Cut(strings.TrimPrefix(p.Key, t.cluster.store.Path(t.prefix)), "/")
		last[name] = max(last[name], p.ModifyIndex)
		t.names[name] = true
	}
	names := make([]string, 0, len(last))
	for name := range last {
		names = append(names, name)
	}
	slices.Sort(names)
	t.root = branch("", names, last)
}

// branch divides names, which are sorted and begin with prefix.
func branch(prefix string, names []string, last map[string]uint64) *keyBranch {
	b := &keyBranch{prefix: prefix}
	for _, name := range names {
		b.index = max(b.index, last[name])
	}
	if len(names) <= namesInLeaf || names[0] == prefix {
		return b // a name that is the prefix itself has no prefix of its own
	}
	b.prefix = common(names[0], names[len(names)-1])
	if names[0] == b.prefix {
		b.prefix = prefix
		return b
	}
	for begin := 0; begin < len(names); {
		_, size := utf8.DecodeRuneInString(names[begin][len(b.prefix):])
		next := names[begin][:len(b.prefix)+size]
		end := begin + 1
		for end < len(names) && strings.HasPrefix(names[end], next) {
			end++
		}
		b.branches = append(b.branches, branch(next, names[begin:end], last))
		begin = end
	}
	return b
}

// common returns the longest common prefix of two names, whole characters only.
func common(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) {
		r, size := utf8.DecodeRuneInString(a[n:])
		if other, _ := utf8.DecodeRuneInString(b[n:]); r != other {
			break
		}
		n += size
	}
	return a[:n]
}

// changed reads what has changed since the last call.
func (t *keyTree) changed(ctx context.Context) (changedKeys, error) {
	index, err := t.indexOf(ctx, strings.TrimSuffix(t.prefix, "/")) // of keys with another end, too
	switch {
	case err != nil || index == t.index:
		return changedKeys{}, err
	case index < t.index:
		return changedKeys{backwards: true}, nil
	case len(t.root.branches) == 0:
		pairs, err := t.readAll(ctx)
		return changedKeys{prefixes: []string{""}, pairs: pairs}, err
	}
	keys, _, err := t.keys(ctx, t.prefix)
	if err != nil {
		return changedKeys{}, err
	}
	names := make(map[string]bool, len(keys))
	for _, name := range keys {
		name = strings.TrimSuffix(strings.TrimPrefix(name, t.cluster.store.Path(t.prefix)), "/")
		if !t.root.covers(name) { // a new name for which there is no branch
			pairs, err := t.readAll(ctx)
			return changedKeys{prefixes: []string{""}, pairs: pairs}, err
		}
		names[name] = true
	}
	w := &treeWalk{tree: t, limit: make(chan struct{}, readsAtATime)}
	g, ctx := errgroup.WithContext(ctx)
	for _, b := range t.root.branches {
		g.Go(func() error { return w.visit(ctx, b) })
	}
	if err := g.Wait(); err != nil {
		return changedKeys{}, err
	}
	// Consul keeps one index for the deletion of a whole prefix, which longer
	// prefixes do not show.
	w.found.gone = map[string]bool{}
	for name := range t.names {
		if !names[name] {
			w.found.gone[name] = true
		}
	}
	t.index, t.names = index, names
	return w.found, nil
}

// covers reports whether name belongs to a leaf.
func (b *keyBranch) covers(name string) bool {
	if !strings.HasPrefix(name, b.prefix) {
		return false
	}
	return len(b.branches) == 0 || slices.ContainsFunc(b.branches, func(c *keyBranch) bool { return c.covers(name) })
}

// treeWalk is one search for changes.
type treeWalk struct {
	tree  *keyTree
	limit chan struct{}

	mu    sync.Mutex
	found changedKeys
}

// visit reads the leaves below b whose index is another; a lower one counts, too:
// Consul forgets deletions after a while.
func (w *treeWalk) visit(ctx context.Context, b *keyBranch) error {
	var index uint64
	err := w.limited(ctx, func() (err error) {
		index, err = w.tree.indexOf(ctx, w.tree.prefix+b.prefix)
		return err
	})
	if err != nil || index == b.index {
		return err
	}
	if len(b.branches) == 0 {
		err = w.read(ctx, b.prefix)
	} else {
		g, ctx := errgroup.WithContext(ctx)
		for _, child := range b.branches {
			g.Go(func() error { return w.visit(ctx, child) })
		}
		err = g.Wait()
	}
	b.index = index
	return err
}

// read reads the keys of all names that begin with prefix.
func (w *treeWalk) read(ctx context.Context, prefix string) error {
	return w.limited(ctx, func() error {
		pairs, err := w.tree.cluster.store.List(ctx, w.tree.prefix+prefix)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found.prefixes = append(w.found.prefixes, prefix)
		w.found.pairs = append(w.found.pairs, pairs...)
		return nil
	})
}

func (w *treeWalk) limited(ctx context.Context, do func() error) error {
	select {
	case w.limit <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.limit }()
	return do()
}
