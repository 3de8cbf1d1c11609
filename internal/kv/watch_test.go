package kv_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

func TestWatchDocument(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	doc := kv.NewDoc[counter](s, "a/b", 1)
	updates := follow(t, doc.Watch)
	if u := <-updates; u.Err != nil || u.Entry.Exists {
		t.Fatalf("first update = %+v", u)
	}
	foreign(t, s, srv, "a/c", "a neighbour")
	foreign(t, s, srv, "a/b", `{"n":1}`)
	if u := <-updates; u.Err != nil || u.Entry.Value.N != 1 {
		t.Errorf("update = %+v; want n = 1, and none for the neighbour", u)
	}
	foreign(t, s, srv, "a/b", `{"n":`)
	u := <-updates
	wantIs(t, "update of a damaged document", u.Err, kv.ErrDamaged)
	e, err := doc.Get(t.Context())
	wantIs(t, "Get", err, kv.ErrDamaged)
	foreign(t, s, srv, "a/b", `{"n":2}`)
	if u := <-updates; u.Err != nil || u.Entry.Value.N != 2 || u.Entry.Index <= e.Index {
		t.Errorf("update = %+v", u)
	}
	srv.Kill()
	u = until(updates, func(u kv.Update[counter]) bool { return u.Err != nil })
	wantIs(t, "update of a dead Consul", u.Err, consul.ErrUnreachable)
	srv.Restart() // empty
	u = until(updates, func(u kv.Update[counter]) bool { return u.Err == nil })
	if u.Entry.Exists || !u.Reset {
		t.Errorf("update = %+v; want an absent document and Reset", u)
	}
}

func TestWatchTree(t *testing.T) {
	t.Parallel()
	s, srv := newStoreAlone(t)
	tree := kv.NewTree[counter](s, "t/", 1)
	updates := follow(t, tree.Watch)
	if u := <-updates; u.Err != nil || len(u.Leaves) != 0 {
		t.Fatalf("first update = %+v", u)
	}
	step := func(what string, changed ...string) map[string]kv.Leaf[counter] {
		t.Helper()
		u := <-updates
		if u.Err != nil || !slices.Equal(u.Changed, changed) {
			t.Errorf("after %s: %+v; want %v changed", what, u, changed)
		}
		return u.Leaves
	}
	foreign(t, s, srv, "elsewhere", `{"n":1}`)
	foreign(t, s, srv, "t/a", `{"n":1}`)
	step("a", "a")
	foreign(t, s, srv, "t/b", `nonsense`)
	leaves := step("b", "b")
	wantIs(t, "leaf b", leaves["b"].Err, kv.ErrDamaged)
	if a := leaves["a"]; a.Err != nil || a.Value.N != 1 {
		t.Errorf("leaf a = %+v", a)
	}
	if _, err := s.Txn().Set("t/c", []byte(`{"n":3}`)).Delete("t/a").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaves = step("c came and a went", "a", "c")
	list, err := tree.List(t.Context())
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(list)), slices.Sorted(maps.Keys(leaves))) {
		t.Errorf("List = %v, %v; the watch has %v", list, err, leaves)
	}
	if e := mustGet(t, tree.At("c")); e.Value.N != 3 {
		t.Errorf("At(c) = %+v", e)
	}
	srv.Kill()
	until(updates, func(u kv.TreeUpdate[counter]) bool { return u.Err != nil })
	srv.Restart()
	u := until(updates, func(u kv.TreeUpdate[counter]) bool { return u.Err == nil })
	if len(u.Leaves) != 0 || !u.Reset || !slices.Equal(u.Changed, []string{"b", "c"}) {
		t.Errorf("update = %+v; want Reset with b and c gone", u)
	}
}

func TestWatchedTreeIsNeverSmallerForWantOfRights(t *testing.T) {
	t.Parallel()
	srv := consultest.Start(t, consultest.WithACL())
	root := kv.New(srv.Client(), "p")
	foreign(t, root, srv, "t/open", "1")
	foreign(t, root, srv, "t/shut", "1")
	token := srv.NewToken(`key "p/t/open" { policy = "read" }`)
	tree := kv.NewTextTree(kv.New(srv.ClientWithToken(token), "p"), "t/")
	updates := follow(t, tree.Watch)
	if u := <-updates; !errors.Is(u.Err, consul.ErrDenied) || u.Leaves != nil {
		t.Errorf("update = %+v; want ErrDenied", u)
	}
}
