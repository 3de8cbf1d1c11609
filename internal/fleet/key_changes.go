package fleet

import (
	"context"
	"maps"
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
	denseShare   = 32 // if one leaf in so many changed, reading all keys takes less time
	readsAtATime = 16
)

// keyTree finds out which keys below one prefix have changed. Consul has no stream
// of changes, but it tells for every byte prefix when a key with it last changed:
// the names of the nodes are divided by prefixes, and only prefixes whose index is
// another are looked into. While keys with many of these prefixes change, as in
// a rollout, one request for all keys costs less than one for each prefix.
type keyTree struct {
	cluster *Cluster
	prefix  string            // of all keys, with a slash at its end
	index   uint64            // of prefix
	known   map[string]uint64 // when each key was last written, by path
	root    *keyBranch
	dense   bool // the last changes were in many leaves
}

// keyBranch is all names that begin with prefix.
type keyBranch struct {
	prefix   string
	index    uint64
	branches []*keyBranch // none: a leaf
}

// changedKeys are what changed below a keyTree.
type changedKeys struct {
	pairs     consul.KVPairs // what was written
	gone      []string       // paths of keys that were deleted
	backwards bool           // the index is below the last one
}

func newKeyTree(c *Cluster, prefix string) *keyTree {
	return &keyTree{cluster: c, prefix: prefix, known: map[string]uint64{}}
}

// readAll reads all keys. index is that of the prefix, read before; 0: it is not known.
func (t *keyTree) readAll(ctx context.Context, index uint64) (changed changedKeys, err error) {
	if index == 0 {
		if index, err = t.indexOf(ctx, strings.TrimSuffix(t.prefix, "/")); err != nil {
			return changedKeys{}, err
		}
	}
	pairs, err := t.cluster.store.List(ctx, t.prefix)
	if err != nil {
		return changedKeys{}, err
	}
	changed = t.accept(pairs, func(string) bool { return true })
	t.index = index
	t.divide()
	return changed, nil
}

// accept records pairs, which are all keys of the names that covered accepts, and
// returns what is new in them.
func (t *keyTree) accept(pairs consul.KVPairs, covered func(name string) bool) (changed changedKeys) {
	read := make(map[string]bool, len(pairs))
	names := map[string]bool{}
	for _, p := range pairs {
		if read[p.Key] = true; t.known[p.Key] != p.ModifyIndex {
			t.known[p.Key] = p.ModifyIndex
			changed.pairs = append(changed.pairs, p)
			names[t.name(p.Key)] = true
		}
	}
	for path := range t.known {
		if name := t.name(path); !read[path] && covered(name) {
			delete(t.known, path)
			changed.gone = append(changed.gone, path)
			names[name] = true
		}
	}
	t.dense = t.root != nil && denseShare*t.root.leavesOf(names) > t.root.leaves()
	return changed
}

// name returns the name of the node in a key's path.
func (t *keyTree) name(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, t.cluster.store.Path(t.prefix)), "/")
	return name
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

// divide makes the branches of the names. The index of a branch is that of its
// last write; a deletion may have a later one, which makes the branch be read once
// in vain.
func (t *keyTree) divide() {
	last := map[string]uint64{}
	for path, index := range t.known {
		name := t.name(path)
		last[name] = max(last[name], index)
	}
	t.root = branch("", slices.Sorted(maps.Keys(last)), last)
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
	below, index, err := t.keys(ctx, strings.TrimSuffix(t.prefix, "/")) // of keys with another end, too
	switch {
	case err != nil || len(below)+len(t.known) == 0: // the index of no key is that of the whole KV
		return changedKeys{}, err
	case len(below) == 0: // a shorter prefix may have been deleted, which the index does not show
		return t.readAll(ctx, index)
	case index == t.index:
		return changedKeys{}, nil
	case index < t.index:
		return changedKeys{backwards: true}, nil
	case t.dense || len(t.root.branches) == 0:
		return t.readAll(ctx, index)
	}
	keys, _, err := t.keys(ctx, t.prefix)
	if err != nil {
		return changedKeys{}, err
	}
	names := make(map[string]bool, len(keys))
	for _, path := range keys {
		name := t.name(path)
		if !t.root.covers(name) { // a new name for which there is no branch
			return t.readAll(ctx, index)
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
	t.index = index
	// Consul keeps one index for the deletion of a whole prefix, which longer
	// prefixes do not show: a name that is not among the keys is gone in any case.
	return t.accept(w.pairs, func(name string) bool {
		return !names[name] || slices.ContainsFunc(w.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}), nil
}

// covers reports whether name belongs to a leaf.
func (b *keyBranch) covers(name string) bool {
	if !strings.HasPrefix(name, b.prefix) {
		return false
	}
	return len(b.branches) == 0 || slices.ContainsFunc(b.branches, func(c *keyBranch) bool { return c.covers(name) })
}

// leaves returns how many leaves there are.
func (b *keyBranch) leaves() (n int) {
	if len(b.branches) == 0 {
		return 1
	}
	for _, c := range b.branches {
		n += c.leaves()
	}
	return n
}

// leavesOf returns how many leaves the names are in.
func (b *keyBranch) leavesOf(names map[string]bool) (n int) {
	if len(names) == 0 {
		return 0
	}
	if len(b.branches) == 0 {
		return 1
	}
	for _, c := range b.branches {
		below := map[string]bool{}
		for name := range names {
			if strings.HasPrefix(name, c.prefix) {
				below[name] = true
			}
		}
		n += c.leavesOf(below)
	}
	return n
}

// treeWalk is one search for changes.
type treeWalk struct {
	tree  *keyTree
	limit chan struct{}

	mu       sync.Mutex
	prefixes []string       // of names that were read
	pairs    consul.KVPairs // their keys
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
		w.prefixes, w.pairs = append(w.prefixes, prefix), append(w.pairs, pairs...)
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
