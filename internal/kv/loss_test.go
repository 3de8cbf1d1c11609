package kv_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jorc/jorc/internal/kv"
)

// lost waits for the end of the lock's context and checks all that follows.
func lost(t *testing.T, h *kv.Lease) {
	t.Helper()
	<-h.Context().Done()
	wantIs(t, "the context's cause", context.Cause(h.Context()), kv.ErrLockLost)
	wantIs(t, "Err", h.Err(), kv.ErrLockLost)
	_, err := h.Txn().Set("x", nil).Commit(t.Context())
	wantIs(t, "Commit", err, kv.ErrLockLost)
}

func TestLockTakenAway(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	for name, take := range map[string]func(*kv.Lease) error{
		"session destroyed": func(h *kv.Lease) error { return srv.Client().SessionDestroy(t.Context(), h.SessionID()) },
		"key deleted":       func(*kv.Lease) error { return srv.Client().KVDeleteTree(t.Context(), s.Path("lock")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := mustLock(t, s, "lock")
			if err := take(h); err != nil {
				t.Fatal(err)
			}
			lost(t, h)
			wantIs(t, "Unlock", h.Release(t.Context()), kv.ErrLockLost)
		})
	}
}

// TestWritesAreFenced takes the lock away and lets its holder, who does not
// know yet, write at once.
func TestWritesAreFenced(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	mine := kv.NewDoc[counter](s, "n", 1)
	for i := range 20 {
		h := mustLock(t, s, fmt.Sprint("lock", i))
		batch := h.Store().NonAtomicBatch()
		batch.Add(h.Txn().Set("x", nil))
		txn := h.Txn().Set("x", nil)
		if err := srv.Client().SessionDestroy(t.Context(), h.SessionID()); err != nil {
			t.Fatal(err)
		}
		_, err := txn.Commit(t.Context())
		wantIs(t, "Commit", err, kv.ErrLockLost)
		_, err = mine.In(h.Store()).Update(t.Context(), increment)
		wantIs(t, "Update", err, kv.ErrLockLost)
		wantIs(t, "Commit of a batch", batch.Commit(t.Context()), kv.ErrLockLost)
		if raw(t, s, srv, "x") != nil || mustGet(t, mine).Exists {
			t.Fatal("a holder that lost its lock has written")
		}
	}
}

// TestHolderStepsDownInTime freezes Consul: the holder must give up by its own
// clock before Consul, once it answers again, can have given the lock away.
func TestHolderStepsDownInTime(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	h := mustLock(t, s, "lock")
	srv.Freeze()
	lost(t, h)
	srv.Thaw()
	next := mustLockWith(t, kv.New(srv.Client(), "jorc/default"), "lock", steady)
	if h.Context().Err() == nil || next.Err() != nil {
		t.Error("two hold the lock")
	}
	wantIs(t, "Unlock", h.Release(t.Context()), kv.ErrLockLost)
}

func TestTakeOverAfterTheHolderIsGone(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	cut := newCutter(t, srv)
	h := mustLock(t, cut.store, "lock")
	waiting := make(chan *kv.Lease)
	go func() {
		next, err := s.Lock(context.Background(), "lock", steady)
		if err != nil {
			t.Error(err)
		}
		waiting <- next
	}()
	cut.before.Store(1 << 30) // from now on none of its writes arrives, as if it were dead
	lost(t, h)
	next := <-waiting
	if h.Context().Err() == nil {
		t.Error("the lock was given away under its holder")
	}
	if err := next.Release(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}
