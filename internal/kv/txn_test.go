package kv_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
)

func TestTransactionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	foreign(t, s, srv, "a", "1")
	index := raw(t, s, srv, "a").ModifyIndex
	r, err := s.Txn().CheckIndex("a", index).CheckIndex("none", 0).CheckNotExists("b").
		Get("a").CAS("a", []byte("2"), index).Set("b", nil).Set("c", []byte("x")).Delete("c").
		Get("b").Get("none").Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := raw(t, s, srv, "a").ModifyIndex
	if r.Index("a") != now || r.Index("b") != now || r.Index("c") != 0 || r.Index("none") != 0 {
		t.Errorf("indexes a %d, b %d, c %d, none %d; want %d, %d, 0, 0",
			r.Index("a"), r.Index("b"), r.Index("c"), r.Index("none"), now, now)
	}
	for key, want := range map[string]kv.Entry[string]{
		"a": {Value: "1", Index: index, Exists: true}, "b": {Index: now, Exists: true}, "none": {},
	} {
		got, err := kv.NewText(s, key).From(r)
		if err != nil || got.Value != want.Value || got.Index != want.Index || got.Exists != want.Exists {
			t.Errorf("From(%q) = %+v, %v; want %+v", key, got, err, want)
		}
	}

	_, err = s.Txn().Set("d", nil).CAS("a", nil, index).CheckNotExists("b").DeleteCAS("a", index).Commit(t.Context())
	wantIs(t, "Commit", err, kv.ErrConflict)
	var c *kv.ConflictError
	if !errors.As(err, &c) || len(c.Failures) != 3 {
		t.Fatalf("Commit = %#v; want three failures", err)
	}
	for i, want := range []kv.Failure{{Op: "cas", Key: "a"}, {Op: "check-not-exists", Key: "b"}, {Op: "delete-cas", Key: "a"}} {
		if got := c.Failures[i]; got.Op != want.Op || got.Key != want.Key || got.Reason == "" {
			t.Errorf("failure %d = %+v; want %+v with a reason", i, got, want)
		}
	}
	if raw(t, s, srv, "d") != nil {
		t.Error("a transaction that conflicts has written")
	}
	_, err = s.Txn().CheckIndex("a", index).Get("a").Commit(t.Context())
	wantIs(t, "a stale read-only Commit", err, kv.ErrConflict)
	if _, err := s.Txn().Commit(t.Context()); err != nil {
		t.Errorf("Commit of nothing = %v", err)
	}
}

func TestDocumentsInTransactions(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	a, b := kv.NewDoc[counter](s, "a", 1), kv.NewDoc[counter](s, "b", 1)
	foreign(t, s, srv, "a", `{"n":1,"x":2}`)
	txn := s.Txn()
	a.SwapIn(txn, mustGet(t, a), counter{N: 2})
	b.SetIn(txn, counter{N: 3})
	r, err := txn.Get("a").Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e, err := a.From(r); err != nil || e.Value.N != 2 || e.Index != r.Index("a") {
		t.Errorf("From = %+v, %v", e, err)
	}
	if got := string(raw(t, s, srv, "a").Value); got != `{"format":1,"x":2,"n":2}` {
		t.Errorf("stored %s", got)
	}
	txn = kv.New(srv.Client(), "elsewhere").Txn()
	b.SetIn(txn, counter{})
	_, err = txn.Commit(t.Context())
	wantIs(t, "a document in another store's transaction", err, kv.ErrBadKey)
	_, err = s.Txn().Set("/x", nil).Commit(t.Context())
	wantIs(t, "a bad key", err, kv.ErrBadKey)
}

func TestTransactionsUpToTheLimits(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	txn := s.Txn()
	for i := range kv.MaxOps {
		txn.Set(fmt.Sprint("k", i), []byte("v"))
	}
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Errorf("Commit of %d operations = %v", kv.MaxOps, err)
	}
	_, err := txn.Set("one more", nil).Commit(t.Context())
	wantIs(t, "Commit of one more", err, consul.ErrTooLarge)
	wantText(t, "Commit of one more", err, "65 operations", "1 more")

	// Base64 goes in steps of four bytes: the key's length does the rest.
	exact := func(bytesOver int) *kv.Txn {
		for pad := range 4 {
			key := string(bytes.Repeat([]byte("k"), 1+pad))
			free := kv.MaxBody + bytesOver - s.Txn().Set(key, []byte{}).Size()
			if txn := s.Txn().Set(key, make([]byte, free/4*3)); txn.Size() == kv.MaxBody+bytesOver {
				return txn
			}
		}
		t.Fatal("no transaction of the size was found")
		return nil
	}
	if _, err := exact(0).Commit(t.Context()); err != nil {
		t.Errorf("Commit of exactly %d bytes = %v", kv.MaxBody, err)
	}
	over := exact(1)
	_, err = over.Commit(t.Context())
	wantIs(t, "Commit of one byte more", err, consul.ErrTooLarge)
	wantText(t, "Commit of one byte more", err, "524289 bytes", "1 more")
	// Consul itself draws the line in the same place.
	_, _, err = srv.Client().Txn(t.Context(), "over", over.Body().(consul.TxnOps))
	wantIs(t, "one byte more past the check", err, consul.ErrTooLarge)
}

func TestSizeIsThatOfTheBody(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	s := kv.New(nil, "jorc/<&>\"\u2028ü")
	for range 200 {
		txn := s.Txn()
		for range r.IntN(10) {
			key := fmt.Sprintf("%q<&>\x00\xff%d", rune(r.IntN(0x3000)), r.Uint64())
			value := make([]byte, r.IntN(10))
			switch r.IntN(5) {
			case 0:
				txn.Set(key, value)
			case 1:
				txn.Set(key, nil)
			case 2:
				txn.CAS(key, value, r.Uint64())
			case 3:
				txn.CheckSession(key, "12345678-0000-0000-0000-000000000000")
			case 4:
				txn.Get(key)
			}
		}
		var body bytes.Buffer
		ops := txn.Body().(consul.TxnOps)
		if ops == nil {
			ops = consul.TxnOps{}
		}
		if err := json.NewEncoder(&body).Encode(ops); err != nil {
			t.Fatal(err)
		}
		if txn.Size() != body.Len() {
			t.Errorf("Size = %d; the body has %d bytes: %s", txn.Size(), body.Len(), body.Bytes())
		}
	}
}
