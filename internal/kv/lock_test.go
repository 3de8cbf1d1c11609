package kv_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// quick is a lock whose loss does not take long.
var quick = kv.LeaseOptions{TTL: time.Second, LockDelay: -1, Holder: kv.Holder{Node: "n1", Reason: "test"}}

// steady is a lock that is not lost because a busy machine is slow.
var steady = kv.LeaseOptions{TTL: 10 * time.Minute, LockDelay: -1, Holder: quick.Holder}

// mustLock takes a quick lock.
func mustLock(t *testing.T, s *kv.Store, key string) *kv.Lease {
	t.Helper()
	return mustLockWith(t, s, key, quick)
}

func mustLockWith(t *testing.T, s *kv.Store, key string, o kv.LeaseOptions) *kv.Lease {
	t.Helper()
	h, err := s.Lock(t.Context(), key, o)
	if err != nil {
		t.Fatalf("Lock(%q): %v", key, err)
	}
	t.Cleanup(func() { _ = h.Release(context.Background()) }) // not every test's Consul is there at its end
	return h
}

func TestLock(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	if _, held, err := s.Holder(t.Context(), "lock"); held || err != nil {
		t.Errorf("Holder of a free lock = %v, %v", held, err)
	}
	h := mustLockWith(t, s, "lock", steady)
	who, held, err := s.Holder(t.Context(), "lock")
	if err != nil || !held || who.Node != "n1" || who.Reason != "test" || who.ID == "" || who.Since.IsZero() {
		t.Errorf("Holder = %+v, %v, %v", who, held, err)
	}
	_, err = s.TryLock(t.Context(), "lock", steady)
	wantIs(t, "TryLock", err, kv.ErrLocked)

	doc := kv.NewDoc[counter](s, "n", 1)
	if _, err := doc.In(h.Store()).Update(t.Context(), increment); err != nil {
		t.Errorf("Update of the holder = %v", err)
	}
	if _, err := h.Txn().Set("x", nil).Commit(t.Context()); err != nil {
		t.Errorf("Commit of the holder = %v", err)
	}
	if got := h.Txn().Len(); got != 1 {
		t.Errorf("the holder's transactions begin with %d operations; want the check", got)
	}
	if err := h.Err(); err != nil || h.Context().Err() != nil {
		t.Errorf("Err = %v, context %v", err, h.Context().Err())
	}
	if err := h.Release(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
	if h.Context().Err() == nil {
		t.Error("the context outlives Unlock")
	}
	if _, held, err := s.Holder(t.Context(), "lock"); held || err != nil {
		t.Errorf("Holder after Unlock = %v, %v", held, err)
	}
	if raw(t, s, srv, "lock") == nil || raw(t, s, srv, "x") == nil {
		t.Error("Unlock deleted a key")
	}
	_, err = doc.In(h.Store()).Update(t.Context(), increment)
	wantIs(t, "Update after Unlock", err, kv.ErrLockLost)
	again, err := s.TryLock(t.Context(), "lock", steady)
	if err != nil {
		t.Fatalf("TryLock after Unlock = %v; want no lock delay", err)
	}
	if err := again.Release(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}

func TestLockOptionsThatConsulRefuses(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	_, err := s.Lock(t.Context(), "lock", kv.LeaseOptions{TTL: time.Millisecond})
	wantIs(t, "Lock with a TTL of 1 ms", err, consul.ErrRefused)
	_, err = s.Lock(t.Context(), "/lock", quick)
	wantIs(t, "Lock of a bad key", err, kv.ErrBadKey)
}

func TestLockExcludes(t *testing.T) {
	t.Parallel()
	_, srv := newStoreAlone(t)
	const contenders, rounds = 6, 4
	var inside, entries atomic.Int64
	var all sync.WaitGroup
	for range contenders {
		s := kv.New(srv.Client(), "p")
		all.Go(func() {
			for range rounds {
				h, err := s.Lock(t.Context(), "lock", steady)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				entries.Add(1)
				if _, err := kv.NewDoc[counter](h.Store(), "n", 1).Update(h.Context(), increment); err != nil {
					t.Error(err)
				}
				inside.Add(-1)
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if entries.Load() != contenders*rounds {
		t.Errorf("%d entries; want %d", entries.Load(), contenders*rounds)
	}
	if got := mustGet(t, kv.NewDoc[counter](kv.New(srv.Client(), "p"), "n", 1)).Value.N; got != contenders*rounds {
		t.Errorf("the counter is %d", got)
	}
}

func TestLockIsRenewed(t *testing.T) {
	t.Parallel()
	_, srv := newStoreAlone(t)
	for o := quick; ; o.TTL *= 2 { // on a busy machine Consul may answer too late for a short one
		cut := newCutter(t, srv)
		h := mustLockWith(t, cut.store, "lock", o)
		consultest.Eventually(t, "ten renewals", func(context.Context) error { // Consul ends a session after six were missed
			if h.Err() == nil && cut.renewals.Load() < 10 {
				return errors.New("too few yet")
			}
			return nil
		})
		if errors.Is(h.Err(), kv.ErrLockLost) {
			continue
		}
		if _, err := h.Txn().Set("x", nil).Commit(t.Context()); err != nil {
			t.Errorf("Commit = %v", err)
		}
		return
	}
}

func TestLockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	h := mustLockWith(t, s, "lock", steady)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.Lock(ctx, "lock", steady)
		ended <- err
	}()
	cancel()
	wantIs(t, "Lock", <-ended, context.Canceled)

	ctx, cancel = context.WithCancel(t.Context())
	other, err := s.Lock(ctx, "other", steady)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-other.Context().Done()
	if err := other.Err(); err != nil {
		t.Errorf("Err = %v; the lock is still held until Unlock", err)
	}
	if _, held, err := s.Holder(t.Context(), "other"); !held || err != nil {
		t.Errorf("Holder = %v, %v; want it held until Unlock", held, err)
	}
	if err := other.Release(ctx); err != nil {
		t.Errorf("Unlock with a context that ended = %v", err)
	}
	if got := raw(t, s, srv, "other").Session; got != "" {
		t.Errorf("session %s holds the lock after Unlock", got)
	}
	srv.Kill()
	err = h.Release(t.Context())
	if !errors.Is(err, consul.ErrUnreachable) && !errors.Is(err, kv.ErrLockLost) {
		t.Errorf("Unlock at a dead Consul = %v", err)
	}
}

func TestLockWaitsForConsul(t *testing.T) {
	t.Parallel()
	srv := consultest.Start(t, consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"}))
	s := kv.New(srv.Client(), "p")
	srv.Kill()
	got := make(chan *kv.Lease)
	go func() {
		h, err := s.Lock(context.Background(), "lock", steady)
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	srv.Restart()
	if err := (<-got).Release(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}

func TestLockAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	slow := quick // it lasts longer than a busy machine is slow, and a session whose answer is lost ends soon
	slow.TTL = 5 * time.Second
	for writes := range int64(4) {
		for _, after := range []bool{false, true} {
			cut := newCutter(t, srv)
			if after {
				cut.after.Store(writes)
			} else {
				cut.before.Store(writes)
			}
			h, err := cut.store.Lock(t.Context(), "lock", slow)
			if err != nil {
				t.Fatal(err)
			}
			if _, held, err := s.Holder(t.Context(), "lock"); !held || err != nil {
				t.Errorf("Holder = %v, %v", held, err)
			}
			if err := h.Release(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		}
	}
}

// TestLockNoticesARestore: who waits for a lock hears that Consul's data was restored meanwhile.
func TestLockNoticesARestore(t *testing.T) {
	t.Parallel()
	srv := consultest.Start(t)
	s, snapshot := kv.New(srv.Client(), "p"), filepath.Join(t.TempDir(), "snapshot")
	srv.Run("snapshot", "save", snapshot)
	held, err := s.Lock(t.Context(), "lock", steady)
	if err != nil {
		t.Fatal(err)
	}
	var restored atomic.Int32
	proxy := srv.Proxy()
	o := steady
	o.Restored = func() { restored.Add(1) }
	got := make(chan *kv.Lease)
	go func() {
		h, err := kv.New(proxy.Client(), "p").Lock(context.Background(), "lock", o)
		if err != nil {
			t.Error(err)
		}
		got <- h
	}()
	proxy.WaitBlocking("/v1/kv/p/lock")
	srv.Run("snapshot", "restore", snapshot)
	h := <-got
	if restored.Load() != 1 {
		t.Errorf("it was heard %d times", restored.Load())
	}
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	_ = held.Release(t.Context()) // it was lost with the restore
}

// TestHeldSince: a holder that had to wait is dated from when it got the lock.
func TestHeldSince(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	first := mustLockWith(t, s, "lock", steady)
	c := newCutter(t, srv)
	got := make(chan error, 1)
	var second *kv.Lease
	go func() {
		var err error
		second, err = c.store.Lock(t.Context(), "lock", steady)
		got <- err
	}()
	consultest.Eventually(t, "the second to wait", func(context.Context) error {
		if c.blocking.Load() == 0 {
			return errors.New("it has not asked yet")
		}
		return nil
	})
	released := time.Now().Truncate(time.Millisecond)
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Release(context.Background()) }() // Consul may be gone
	if who, held, err := s.Holder(t.Context(), "lock"); err != nil || !held || who.Since.Before(released) {
		t.Errorf("Holder = %+v, %v, %v; want since %v or later", who, held, err, released)
	}
}
