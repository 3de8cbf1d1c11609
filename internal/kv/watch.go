package kv

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/consul"
)

// Update reads the document, calls change for its successor, and writes that by
// compare-and-swap; after a conflict it starts over with back-off. change must
// have no side effects. When it returns false or an error nothing is written.
// It is not called for a document that cannot be decoded.
//
// Update returns the document as it is now, or change's error, or what Get and
// CompareAndSwap return except ErrConflict. When the answer to a write is lost
// Update reads what became of it; consul.ErrOutcomeUnknown means that this
// could not be determined.
func (d Doc[T]) Update(ctx context.Context, change func(old Entry[T]) (T, bool, error)) (Entry[T], error) {
	return d.retryConflicts(ctx, func() (Entry[T], error) {
		old, err := d.Get(ctx)
		if err != nil {
			return Entry[T]{}, err
		}
		v, write, err := change(old)
		if err != nil || !write {
			return old, err
		}
		return d.swapAndConfirm(ctx, old, v)
	})
}

// Change is Update of the document and of other keys in one transaction: change
// adds the operations on the other keys to t, which is empty at each call. A
// conflict of any operation starts over. Unlike Update it returns
// consul.ErrOutcomeUnknown without reading what became of the write.
func (d Doc[T]) Change(ctx context.Context, change func(old Entry[T], t *Txn) (T, bool, error)) (Entry[T], error) {
	return d.retryConflicts(ctx, func() (Entry[T], error) {
		old, err := d.Get(ctx)
		if err != nil {
			return Entry[T]{}, err
		}
		t := d.store.Txn()
		v, write, err := change(old, t)
		if err != nil || !write {
			return old, err
		}
		e, err := d.replace(v, old)
		if err != nil {
			return Entry[T]{}, err
		}
		t.CAS(d.key, e.raw, old.Index)
		r, err := t.Commit(ctx)
		if err != nil {
			return Entry[T]{}, err
		}
		e.Index = r.Index(d.key)
		return e, nil
	})
}

// retryConflicts calls attempt until it returns something else than
// ErrConflict. Of the goroutines of this process only one at a time changes a
// key, so that they never cost each other a failed compare-and-swap.
func (d Doc[T]) retryConflicts(ctx context.Context, attempt func() (Entry[T], error)) (Entry[T], error) {
	backoff, unlock, err := d.store.writers.lock(ctx, d.store.Path(d.key))
	if err != nil {
		return Entry[T]{}, err
	}
	defer unlock()
	for {
		begin := time.Now()
		e, err := attempt()
		if !errors.Is(err, ErrConflict) {
			if err == nil {
				backoff.succeeded(time.Since(begin))
			}
			return e, err
		}
		if err := concurrency.Sleep(ctx, backoff.failed(time.Since(begin))); err != nil {
			return Entry[T]{}, err
		}
	}
}

// keyLocks gives each key that is being changed in this process a mutex, and
// keeps the back-off that its conflicts with other processes asked for.
type keyLocks struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

type keyLock struct {
	free    chan struct{} // holds one value while the lock is free
	users   int           // goroutines that hold the lock or wait for it
	backoff casBackoff    // owned by the holder of the lock
}

// maxIdleKeys bounds how many keys without users keep their back-off.
const maxIdleKeys = 64

func newKeyLocks() *keyLocks { return &keyLocks{keys: map[string]*keyLock{}} }

// lock waits until no other goroutine of this process changes key. It returns
// the cause of ctx's end when ctx ends first.
func (l *keyLocks) lock(ctx context.Context, key string) (b *casBackoff, unlock func(), err error) {
	k := l.use(key)
	select {
	case <-k.free:
		return &k.backoff, func() { k.free <- struct{}{}; l.release(key, k) }, nil
	case <-ctx.Done():
		l.release(key, k)
		return nil, nil, context.Cause(ctx)
	}
}

func (l *keyLocks) use(key string) *keyLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[key]
	if k == nil {
		k = &keyLock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.keys[key] = k
	}
	k.users++
	return k
}

func (l *keyLocks) release(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 && (k.backoff.window == 0 || len(l.keys) > maxIdleKeys) {
		delete(l.keys, key)
	}
}

// casBackoff paces compare-and-swaps of one key that several processes change.
// A conflict costs the servers as much as a write, so the pause after it is
// drawn from a window that doubles with each conflict and loses a quarter with
// each success (the rule of Ethernet's and TCP's congestion windows). It settles where
// about two attempts of three succeed, whatever the number of writers. The
// smallest window is the time that one attempt takes, which grows with Consul's
// load.
type casBackoff struct{ window time.Duration }

// Bounds of the window. A busy Consul takes about a hundred changes of one key
// a second, so a thousand writers need a window of seconds; on an idle Consul,
// where an attempt is short, longer pauses than minWidest only waste time.
const (
	minWidest      = 250 * time.Millisecond
	maxWidest      = 8 * time.Second
	widestAttempts = 64 // the widest window, in lengths of an attempt
)

// failed returns the pause that a conflict asks for after an attempt of length took.
func (b *casBackoff) failed(took time.Duration) time.Duration {
	widest := min(max(minWidest, widestAttempts*took), maxWidest)
	b.window = min(max(2*b.window, took), widest)
	return rand.N(b.window + 1)
}

func (b *casBackoff) succeeded(took time.Duration) {
	if b.window -= b.window / 4; b.window < took {
		b.window = 0
	}
}

// swapAndConfirm is CompareAndSwap that reads what became of a write whose
// answer was lost.
func (d Doc[T]) swapAndConfirm(ctx context.Context, old Entry[T], v T) (Entry[T], error) {
	e, err := d.replace(v, old)
	if err != nil {
		return Entry[T]{}, err
	}
	mark := newMark()
	e.Index, err = d.store.swap(ctx, d.key, e.raw, old.Index, mark)
	if errors.Is(err, consul.ErrOutcomeUnknown) {
		e.Index, err = d.store.confirm(ctx, d.key, e.raw, old.Index, mark, err)
	}
	if err != nil {
		return Entry[T]{}, err
	}
	return e, nil
}

// swap writes value if key's index still is index, and returns the new index.
func (s *Store) swap(ctx context.Context, key string, value []byte, index, mark uint64) (uint64, error) {
	if len(value) > MaxValue {
		return 0, tooLarge("write key", s.Path(key), "%d bytes; the limit is %d", len(value), MaxValue)
	}
	t := s.Txn()
	t.add(consul.KVCAS, key, consul.KVTxnOp{Value: value, Flags: mark, Index: index})
	if s.held == nil && t.Size() > MaxBody {
		return s.swapWithoutTxn(ctx, key, value, index, mark)
	}
	r, err := t.Commit(ctx)
	if err != nil {
		return 0, err
	}
	return r.Index(key), nil
}

// swapWithoutTxn is swap for values that fit into a key but not, base64
// included, into a transaction. Consul does not return the new index then.
func (s *Store) swapWithoutTxn(ctx context.Context, key string, value []byte, index, mark uint64) (uint64, error) {
	if err := s.check(key); err != nil {
		return 0, err
	}
	ok, err := s.client.KVCAS(ctx, &consul.KVPair{Key: s.Path(key), Value: value, Flags: mark, ModifyIndex: index})
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, conflict("cas", key, "index is stale")
	}
	if all := recordersOf(ctx); len(all) > 0 {
		if err := s.record(ctx, all, []Write{{key, digest(value)}}); err != nil {
			return 0, err
		}
	}
	p, _, err := s.get(ctx, key, consul.Query{Consistent: true})
	if err != nil || p == nil || p.Flags != mark {
		return 0, nil // written; without the new index the next write conflicts and reads again
	}
	return p.ModifyIndex, nil
}

const (
	confirmWithin = 15 * time.Second // longer than an election of Consul's servers
	confirmPause  = 50 * time.Millisecond
	confirmMax    = 250 * time.Millisecond
)

// confirm finds out what became of a write whose answer was lost; unknown is
// the error that the write ended with. It returns the new index when the write
// was carried out, and unknown when that cannot be determined.
//
// The mark in the key's flags identifies the write. While the key still has the
// index that the write expected, the write has not been carried out so far, and
// it is safe to send it again: of all writes that expect one index at most one
// succeeds. With any other index and mark the write may have been carried out
// and overwritten since. An absent key may have been created and deleted, so a
// creation is never sent again.
func (s *Store) confirm(ctx context.Context, key string, value []byte, index, mark uint64, unknown error) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	pauses := concurrency.NewBackoff(confirmPause, confirmMax)
	for {
		p, _, err := s.get(ctx, key, consul.Query{Consistent: true})
		switch {
		case errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
			if pauses.Wait(ctx) != nil {
				return 0, unknown
			}
			continue
		case err != nil:
			return 0, unknown
		case p != nil && p.Flags == mark && bytes.Equal(p.Value, value):
			return p.ModifyIndex, nil
		case p == nil || index == 0 || p.ModifyIndex != index:
			return 0, unknown
		}
		n, err := s.swap(ctx, key, value, index, mark)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, ErrConflict): // the first write may have arrived meanwhile: read again
		case errors.Is(err, consul.ErrOutcomeUnknown), errors.Is(err, consul.ErrUnreachable), errors.Is(err, consul.ErrRateLimited):
			if pauses.Wait(ctx) != nil {
				return 0, unknown
			}
		default:
			return 0, unknown
		}
	}
}

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
