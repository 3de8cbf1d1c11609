package kv_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// shortSessions lets sessions expire soon.
func shortSessions() consultest.Option {
	return consultest.WithConfig(map[string]any{"session_ttl_min": "500ms"})
}

// newStore returns a store of the test's own in the server of all tests.
func newStore(t testing.TB) (*kv.Store, *consultest.Server) {
	t.Helper()
	s, name := consultest.Shared(t, shortSessions())
	return kv.New(s.Client(), "jorc/"+name), s
}

// newStoreAlone returns a store in a server of its own, for a test that stops it.
func newStoreAlone(t testing.TB) (*kv.Store, *consultest.Server) {
	t.Helper()
	s := consultest.Start(t, shortSessions())
	return kv.New(s.Client(), "jorc/default"), s
}

// sameKeys returns another store of the same keys, as another process has it.
func sameKeys(s *kv.Store, srv *consultest.Server) *kv.Store {
	return kv.New(srv.Client(), strings.TrimSuffix(s.Path(""), "/"))
}

type counter struct {
	N int `json:"n"`
}

func increment(old kv.Entry[counter]) (counter, bool, error) {
	return counter{N: old.Value.N + 1}, true, nil
}

func mustGet[T any](t testing.TB, d kv.Doc[T]) kv.Entry[T] {
	t.Helper()
	e, err := d.Get(t.Context())
	if err != nil {
		t.Fatalf("Get(%q): %v", d.Key(), err)
	}
	return e
}

func mustSwap[T any](t testing.TB, d kv.Doc[T], old kv.Entry[T], v T) kv.Entry[T] {
	t.Helper()
	e, err := d.CompareAndSwap(t.Context(), old, v)
	if err != nil {
		t.Fatalf("CompareAndSwap(%q): %v", d.Key(), err)
	}
	return e
}

// foreign writes a key as a script without jorc does.
func foreign(t testing.TB, s *kv.Store, srv *consultest.Server, key, value string) {
	t.Helper()
	if err := srv.Client().KVPut(t.Context(), &consul.KVPair{Key: s.Path(key), Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

func raw(t testing.TB, s *kv.Store, srv *consultest.Server, key string) *consul.KVPair {
	t.Helper()
	p, _, err := srv.Client().KVGet(t.Context(), s.Path(key), consul.Query{Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// follow runs watch in the background and hands out what it tells.
func follow[U any](t *testing.T, watch func(context.Context, func(U)) error) <-chan U {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	updates := make(chan U)
	var running sync.WaitGroup
	running.Go(func() {
		err := watch(ctx, func(u U) {
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return updates
}

func until[U any](updates <-chan U, good func(U) bool) U {
	for {
		if u := <-updates; good(u) {
			return u
		}
	}
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v; want %v", what, err, want)
	}
}

func wantText(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s = %v; want it to say %q", what, err, part)
		}
	}
}
