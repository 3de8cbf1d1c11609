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
		mine := sameKeys(s, srv)
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

// TestEphemeralLease: the key holds the value that the lease was given, and ends
// with the session, by Release as well as by hand.
func TestEphemeralLease(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	o := quick
	o.Ephemeral, o.Value = true, counter{N: 7}
	doc := kv.NewDoc[counter](s, "mine", 1)
	for name, end := range map[string]func(*kv.Lease) error{
		"release":   func(l *kv.Lease) error { return l.Release(t.Context()) },
		"destroyed": func(l *kv.Lease) error { return srv.Client().SessionDestroy(t.Context(), l.Session()) },
	} {
		l, err := s.Lock(t.Context(), "mine", o)
		if err != nil {
			t.Fatal(err)
		}
		if e := mustGet(t, doc); e.Session != l.Session() || e.Value.N != 7 || e.Created == 0 {
			t.Errorf("%s: the key is %+v; want it locked by %q", name, e, l.Session())
		}
		if err := end(l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		<-l.Context().Done()
		consultest.Eventually(t, "the key's end", gone(s, srv, "mine"))
		if err := l.Release(t.Context()); (name == "destroyed") != errors.Is(err, kv.ErrLockLost) || name == "destroyed" && !errors.Is(err, kv.ErrTaken) && !errors.Is(err, consul.ErrNotFound) {
			t.Errorf("%s: Release = %v", name, err)
		}
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
