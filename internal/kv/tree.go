package kv

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/consul"
)

// Tree is the keys with one prefix, and one suffix if it has one, whose values
// are of one type.
type Tree[T any] struct {
	store  *Store
	prefix string
	suffix string // with one, a name is a single segment
	codec  codec[T]
}

// Leaf is one key of a tree. Err is ErrDamaged or ErrNewer when its value
// cannot be decoded; that does not affect other leaves.
type Leaf[T any] struct {
	Entry[T]
	Err error
}

// NewTree returns the documents at the keys that begin with prefix, such as
// "members/". Format is as for NewDoc.
func NewTree[T any](s *Store, prefix string, format int) Tree[T] {
	return Tree[T]{store: s, prefix: prefix, codec: document[T]{format: format}}
}

// Ending returns the tree of those of its keys that end with suffix, such as
// "/member" of "host/<name>/member". Names then are the segment between prefix
// and suffix, and other keys with the prefix do not belong to the tree.
func (t Tree[T]) Ending(suffix string) Tree[T] {
	t.suffix = suffix
	return t
}

// NewTextTree returns the bare texts at the keys that begin with prefix.
func NewTextTree(s *Store, prefix string) Tree[string] {
	return Tree[string]{store: s, prefix: prefix, codec: text{}}
}

// In returns the same tree in another store, such as that of a lease.
func (t Tree[T]) In(s *Store) Tree[T] {
	t.store = s
	return t
}

// Checked returns the same tree, in which values of more than limit bytes, and
// values that check refuses, count as damaged: one writer cannot impose any amount
// of data on all readers.
func (t Tree[T]) Checked(limit int, check func(T) error) Tree[T] {
	t.codec = checked[T]{codec: t.codec, limit: limit, check: check}
	return t
}

// At returns the document called name in the tree.
func (t Tree[T]) At(name string) Doc[T] {
	return Doc[T]{store: t.store, key: t.prefix + name + t.suffix, codec: t.codec}
}

// List reads the whole tree: names without the prefix, and what is there. It
// returns consul.ErrDenied also when the token may read only a part, or
// consul.ErrUnreachable.
func (t Tree[T]) List(ctx context.Context) (map[string]Leaf[T], error) {
	pairs, _, err := t.fetch(ctx, t.store.query())
	if err != nil {
		return nil, err
	}
	leaves, _ := t.leaves(pairs, nil)
	return leaves, nil
}

// Names reads the names in the tree without their values, in order. It returns
// consul.ErrDenied or consul.ErrUnreachable.
func (t Tree[T]) Names(ctx context.Context) ([]string, error) {
	keys, meta, err := t.store.client.KVKeys(ctx, t.path(), "", t.store.query())
	if err == nil && meta.Filtered {
		err = t.filtered()
	}
	if err != nil {
		return nil, err
	}
	names := keys[:0]
	for _, key := range keys {
		if name, ok := t.Name(key); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// Decode reads the tree from pairs, the answer to a recursive read of a prefix
// of the store that is not longer than the tree's: several trees of one prefix
// cost one request.
func (t Tree[T]) Decode(pairs consul.KVPairs) map[string]Leaf[T] {
	leaves, _ := t.leaves(pairs, nil)
	return leaves
}

// Name returns the name of the key with a path in the tree; ok is false for keys
// of others.
func (t Tree[T]) Name(key string) (name string, ok bool) {
	name, ok = strings.CutPrefix(key, t.path())
	if !ok || t.suffix == "" {
		return name, ok
	}
	name, ok = strings.CutSuffix(name, t.suffix)
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// TreeUpdate is what one iteration of a tree's watch found.
type TreeUpdate[T any] struct {
	Leaves map[string]Leaf[T] // all of them; not to be changed
	// Changed names what is new, different or gone since the last update
	// without Err, in order.
	Changed []string
	Reset   bool
	// Err: the tree could not be read completely. Leaves is nil; watchers keep the
	// last good ones.
	Err error
}

// Watch calls handle with the tree and again after each change in it, until ctx
// ends; then it returns ctx's error. Otherwise it is like
// Doc.Watch. Only what changed is decoded, but Consul sends the whole tree
// each time.
func (t Tree[T]) Watch(ctx context.Context, handle func(TreeUpdate[T])) error {
	var last map[string]Leaf[T]
	quiet := false
	watch := func(handle func(consul.Update[consul.KVPairs])) error {
		if shared := t.store.sharedFor(t.prefix); shared != nil {
			return shared.watchPrefix(ctx, t.path(), handle)
		}
		return consul.Watch(ctx, t.store.client, t.store.query(), t.fetch, handle)
	}
	return watch(func(u consul.Update[consul.KVPairs]) {
		if u.Err != nil {
			quiet = false
			handle(TreeUpdate[T]{Err: u.Err})
			return
		}
		known := last
		if u.Reset {
			known = nil // an index may have come to mean another value
		}
		leaves, changed := t.leaves(u.Value, known)
		if u.Reset {
			changed = slices.Sorted(maps.Keys(union(leaves, last)))
		}
		last = leaves
		if quiet && !u.Reset && len(changed) == 0 {
			return
		}
		quiet = true
		handle(TreeUpdate[T]{Leaves: leaves, Changed: changed, Reset: u.Reset})
	})
}

func (t Tree[T]) path() string { return t.store.Path(t.prefix) }

// fetch reads the pairs; an answer that ACLs made smaller is a failure.
func (t Tree[T]) fetch(ctx context.Context, q consul.Query) (consul.KVPairs, consul.Meta, error) {
	pairs, meta, err := t.store.client.KVList(ctx, t.path(), q)
	if err == nil && meta.Filtered {
		return nil, consul.Meta{}, t.filtered()
	}
	return pairs, meta, err
}

func (t Tree[T]) filtered() error {
	return &consul.Error{Op: "list keys", Name: t.path(), Class: consul.ErrDenied, Err: errFiltered}
}

// leaves decodes pairs, except where known has the same index, and names the
// differences from known.
func (t Tree[T]) leaves(pairs consul.KVPairs, known map[string]Leaf[T]) (leaves map[string]Leaf[T], changed []string) {
	leaves = make(map[string]Leaf[T], len(pairs))
	for _, p := range pairs {
		name, ok := t.Name(p.Key)
		if !ok {
			continue
		}
		name = strings.Clone(name) // pairs share their memory
		if old, ok := known[name]; ok && old.Index == p.ModifyIndex {
			leaves[name] = old
			continue
		}
		own := *p
		own.Value = bytes.Clone(p.Value)
		e, err := t.At(name).entry(&own)
		leaves[name] = Leaf[T]{Entry: e, Err: err}
		changed = append(changed, name)
	}
	for name := range known {
		if _, ok := leaves[name]; !ok {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return leaves, changed
}

func union[T any](a, b map[string]T) map[string]T {
	u := maps.Clone(a)
	maps.Copy(u, b)
	return u
}
