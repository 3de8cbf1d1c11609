package kv_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// TestChangeKeepsKeysTogether lets many increment a document and a text in one
// transaction each: the two never differ.
func TestChangeKeepsKeysTogether(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	const writers, rounds = 8, 10
	var all sync.WaitGroup
	for range writers {
		mine := kv.New(srv.Client(), "jorc/default")
		all.Go(func() {
			for range rounds {
				_, err := kv.NewDoc[counter](mine, "n", 1).Change(t.Context(), func(old kv.Entry[counter], txn *kv.Txn) (counter, bool, error) {
					kv.NewDoc[counter](mine, "twin", 1).SetIn(txn, counter{N: old.Value.N + 1})
					return increment(old)
				})
				if err != nil {
					t.Errorf("Change = %v", err)
				}
			}
		})
	}
	all.Wait()
	for _, key := range []string{"n", "twin"} {
		if got := mustGet(t, kv.NewDoc[counter](s, key, 1)).Value.N; got != writers*rounds {
			t.Errorf("%s = %d; want %d", key, got, writers*rounds)
		}
	}
}

func TestChangeThatWritesNothing(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	doc := kv.NewDoc[counter](s, "n", 1)
	e, err := doc.Change(t.Context(), func(old kv.Entry[counter], txn *kv.Txn) (counter, bool, error) {
		txn.Set("other", nil)
		return counter{N: 9}, false, nil
	})
	if err != nil || e.Exists || mustGet(t, doc).Exists {
		t.Errorf("Change = %+v, %v; want nothing written", e, err)
	}
}

// TestSessionHoldsKeys opens a session, has a transaction give it a key, and
// destroys it.
func TestSessionHoldsKeys(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	o := quick
	o.DeleteWhenLost = true
	session, err := s.OpenSession(t.Context(), "test", o)
	if err != nil {
		t.Fatal(err)
	}
	doc := kv.NewDoc[counter](s, "mine", 1)
	txn := s.Txn()
	doc.LockIn(txn, counter{N: 7}, session.ID())
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := raw(t, s, srv, "mine").Session; got != session.ID() || mustGet(t, doc).Value.N != 7 {
		t.Errorf("the key is of session %q; want %q", got, session.ID())
	}
	if err := srv.Client().SessionDestroy(t.Context(), session.ID()); err != nil {
		t.Fatal(err)
	}
	<-session.Ended()
	wantIs(t, "Err", session.Err(), kv.ErrLockLost)
	consultest.Eventually(t, "the key's end", gone(s, srv, "mine"))
	txn = s.Txn()
	doc.LockIn(txn, counter{}, session.ID())
	_, err = txn.Commit(t.Context())
	wantIs(t, "a lock of a session that ended", err, kv.ErrConflict)
	if err := session.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func gone(s *kv.Store, srv *consultest.Server, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		p, _, err := srv.Client().KVGet(ctx, s.Path(key), consul.Query{})
		if err == nil && p != nil {
			return errors.New("still there")
		}
		return err
	}
}
