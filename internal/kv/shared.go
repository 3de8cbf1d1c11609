package kv

import (
	"context"
	"strings"
	"sync"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// Shared keeps the keys that begin with one prefix current with one blocking
// query, for any number of watches: those of stores that Store.Sharing returned.
// All of them see the same moment, and never one before a write that was made
// through such a store. The prefix should always hold a key, since a
// query on an empty one wakes with every write to Consul's KV.
type Shared struct {
	store  *Store
	prefix string
	latest concurrency.Latest[shared]

	mu      sync.Mutex
	written uint64 // index of the last write through a store that shares it
}

// shared is what a Shared saw last.
type shared struct {
	pairs  consul.KVPairs
	index  uint64
	resets uint64 // how often Consul's index went backwards
	err    error  // why the keys cannot be read; pairs are then empty
}

// NewShared returns the keys of s that begin with prefix, once Run runs.
func NewShared(s *Store, prefix string) *Shared { return &Shared{store: s, prefix: prefix} }

// Run asks Consul until ctx ends; then it returns ctx's error.
func (h *Shared) Run(ctx context.Context) error {
	tree := NewTextTree(h.store, h.prefix)
	var resets uint64
	return consul.Watch(ctx, h.store.client, h.store.query(), tree.fetch, func(u consul.Update[consul.KVPairs]) {
		if u.Reset {
			resets++
			h.wrote(0)
		}
		h.latest.Set(shared{u.Value, u.Meta.Index, resets, u.Err})
	})
}

// wrote notes the index of a write to one of the keys; 0 forgets it.
func (h *Shared) wrote(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if index == 0 || index > h.written {
		h.written = index
	}
}

// watch calls handle with what was seen last, and whenever that changes. What was
// seen before the last write is left out: the answer that has it is on its way.
func (h *Shared) watch(ctx context.Context, handle func(s shared, reset bool)) error {
	first, resets := true, uint64(0)
	return h.latest.Watch(ctx, func(s shared) {
		h.mu.Lock()
		stale := s.err == nil && s.index < h.written
		h.mu.Unlock()
		if stale {
			return
		}
		reset := !first && s.resets != resets
		first, resets = false, s.resets
		handle(s, reset)
	})
}

// Pairs calls handle with all of the keys, or why they cannot be read, and again
// whenever that changes, until ctx ends; then it returns ctx's error.
func (h *Shared) Pairs(ctx context.Context, handle func(consul.KVPairs, error)) error {
	return h.watch(ctx, func(s shared, _ bool) { handle(s.pairs, s.err) })
}

// Sharing returns the same store whose watches of keys that all begin with the
// prefix of one of parts, which are of this store, too, ask Consul nothing
// themselves. They wait for as long as that part's Run does not run.
func (s *Store) Sharing(parts ...*Shared) *Store {
	c := *s
	c.shared = parts
	return &c
}

// sharedFor returns the part that covers all keys with a prefix; nil: none does.
func (s *Store) sharedFor(prefix string) *Shared {
	for _, h := range s.shared {
		if strings.HasPrefix(prefix, h.prefix) {
			return h
		}
	}
	return nil
}

// watchKey passes updates of one key to handle, like a watch of that key alone.
func (h *Shared) watchKey(ctx context.Context, path string, handle func(consul.Update[*consul.KVPair])) error {
	return h.watch(ctx, func(s shared, reset bool) {
		u := consul.Update[*consul.KVPair]{Reset: reset, Err: s.err}
		for _, p := range s.pairs {
			if p.Key == path {
				u.Value = p
			}
		}
		handle(u)
	})
}

// watchPrefix passes updates of all keys with a prefix to handle, like a watch of
// that prefix.
func (h *Shared) watchPrefix(ctx context.Context, path string, handle func(consul.Update[consul.KVPairs])) error {
	return h.watch(ctx, func(s shared, reset bool) {
		u := consul.Update[consul.KVPairs]{Reset: reset, Err: s.err}
		for _, p := range s.pairs {
			if strings.HasPrefix(p.Key, path) {
				u.Value = append(u.Value, p)
			}
		}
		handle(u)
	})
}
