package kv_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	doc := kv.NewDoc[counter](s, "a/doc", 1)
	if e := mustGet(t, doc); e.Exists || e.Index != 0 {
		t.Errorf("Get of an absent document = %+v", e)
	}
	first := mustSwap(t, doc, kv.Entry[counter]{}, counter{N: 1})
	if got := raw(t, s, srv, "a/doc"); string(got.Value) != `{"format":1,"n":1}` || got.ModifyIndex != first.Index {
		t.Errorf("stored %s at index %d; the entry says %d", got.Value, got.ModifyIndex, first.Index)
	}
	_, err := doc.CompareAndSwap(t.Context(), kv.Entry[counter]{}, counter{N: 9})
	wantIs(t, "creating what exists", err, kv.ErrConflict)
	second := mustSwap(t, doc, first, counter{N: 2})
	_, err = doc.CompareAndSwap(t.Context(), first, counter{N: 9})
	wantIs(t, "a stale swap", err, kv.ErrConflict)
	wantText(t, "a stale swap", err, `"a/doc"`, "cas", "stale")
	wantIs(t, "a stale deletion", doc.Delete(t.Context(), first.Index), kv.ErrConflict)
	if e := mustGet(t, doc); e.Value.N != 2 || e.Index != second.Index {
		t.Errorf("after refused writes: %+v", e)
	}
	if err := doc.Delete(t.Context(), second.Index); err != nil {
		t.Errorf("Delete = %v", err)
	}
	wantIs(t, "a deletion of what is gone", doc.Delete(t.Context(), second.Index), kv.ErrConflict)
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	doc := kv.NewDoc[counter](s, "doc", 2)
	for _, c := range []struct {
		name, stored string
		want         error
	}{
		{"empty", "", kv.ErrDamaged},
		{"cut", `{"format":1,"n":`, kv.ErrDamaged},
		{"no object", `[1]`, kv.ErrDamaged},
		{"null", `null`, kv.ErrDamaged},
		{"two", `{"n":1}{"n":2}`, kv.ErrDamaged},
		{"wrong type", `{"n":"x"}`, kv.ErrDamaged},
		{"wrong format", `{"format":"x"}`, kv.ErrDamaged},
		{"not UTF-8", "{\"n\":1,\"x\":\"\xff\"}", kv.ErrDamaged},
		{"newer", `{"format":3,"n":{}}`, kv.ErrNewer},
		{"older", `{"format":1,"n":7}`, nil},
		{"by hand", " {\"n\":7}\n", nil},
		{"with more", `{"format":2,"n":7,"x":1}`, nil},
	} {
		foreign(t, s, srv, "doc", c.stored)
		e, err := doc.Get(t.Context())
		wantIs(t, "Get of "+c.name, err, c.want)
		if c.want == nil {
			if e.Value.N != 7 {
				t.Errorf("Get of %s = %+v", c.name, e)
			}
			continue
		}
		_, err = doc.Update(t.Context(), func(kv.Entry[counter]) (counter, bool, error) {
			t.Errorf("Update of %s asked for a change", c.name)
			return counter{}, true, nil
		})
		wantIs(t, "Update of "+c.name, err, c.want)
		if got := raw(t, s, srv, "doc"); string(got.Value) != c.stored {
			t.Errorf("Update overwrote %s", c.name)
		}
	}
}

func TestMembersOfANewerVersionSurvive(t *testing.T) {
	t.Parallel()
	type inner struct {
		Inside string `json:"inside,omitempty"`
	}
	type old struct {
		inner
		N     int               `json:"n,omitempty"`
		Map   map[string]string `json:"map,omitempty"`
		Plain string
	}
	s, srv := newStore(t)
	doc := kv.NewDoc[old](s, "doc", 1)
	foreign(t, s, srv, "doc", `{"format":1,"n":5,"map":{"a":"b"},"Plain":"p","z":{"deep": [1, 2]},"a<b":12345678901234567890}`)
	_, err := doc.Update(t.Context(), func(e kv.Entry[old]) (old, bool, error) {
		e.Value.N = 0
		e.Value.Plain = "<&>"
		return e.Value, true, nil
	})
	want := `{"format":1,"a<b":12345678901234567890,"z":{"deep":[1,2]},"map":{"a":"b"},"Plain":"<&>"}`
	if got := string(raw(t, s, srv, "doc").Value); err != nil || got != want {
		t.Errorf("Update left\n%s, %v; want\n%s", got, err, want)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	version := kv.NewText(s, "current_version")
	foreign(t, s, srv, "current_version", "v1\n")
	e := mustGet(t, version)
	if e.Value != "v1\n" {
		t.Errorf("Get = %q", e.Value)
	}
	mustSwap(t, version, e, "v2")
	if got := raw(t, s, srv, "current_version"); string(got.Value) != "v2" {
		t.Errorf("stored %q", got.Value)
	}
}

func TestValuesUpToConsulsLimit(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	doc := kv.NewText(s, "big")
	e := mustSwap(t, doc, kv.Entry[string]{}, strings.Repeat("x", kv.MaxValue))
	if got := mustGet(t, doc); got.Index != e.Index || len(got.Value) != kv.MaxValue {
		t.Errorf("Get = %d bytes at %d; the swap said %d", len(got.Value), got.Index, e.Index)
	}
	_, err := doc.CompareAndSwap(t.Context(), kv.Entry[string]{}, strings.Repeat("y", kv.MaxValue))
	wantIs(t, "a conflict with a large value", err, kv.ErrConflict)
	_, err = doc.CompareAndSwap(t.Context(), e, strings.Repeat("x", kv.MaxValue+1))
	wantIs(t, "one byte more", err, consul.ErrTooLarge)
	wantText(t, "one byte more", err, strconv.Quote(s.Path("big")), "524289", "524288")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s, srv := newStore(t)
	for _, key := range []string{"", "/a"} {
		doc := kv.NewText(s, key)
		_, err := doc.Get(t.Context())
		wantIs(t, "Get", err, kv.ErrBadKey)
		_, err = doc.CompareAndSwap(t.Context(), kv.Entry[string]{}, "x")
		wantIs(t, "CompareAndSwap", err, kv.ErrBadKey)
		wantIs(t, "Watch", doc.Watch(t.Context(), func(kv.Update[string]) {}), kv.ErrBadKey)
	}
	odd := []string{"current_version", "a,b?c&d=e", "a b%?#ü/\\x", "<&>"}
	t.Run("this Consul", func(t *testing.T) { oddKeys(t, kv.New(srv.Client(), ""), odd, srv.Refuses) })
	t.Run("1.21", func(t *testing.T) {
		oddKeys(t, kv.New(srv.Strict().Client(), ""), odd, func(key string) bool { return strings.ContainsAny(key, " #<") })
	})
}

// oddKeys writes, reads and deletes keys of a Consul that may refuse some of them.
func oddKeys(t *testing.T, root *kv.Store, keys []string, refuses func(key string) bool) {
	command := kv.WithRecorder(t.Context(), silent{})
	for _, key := range keys {
		doc := kv.NewText(root, key)
		if refuses(key) {
			_, err := doc.CompareAndSwap(command, kv.Entry[string]{}, "v")
			wantIs(t, "CompareAndSwap of a command", err, consul.ErrRefused)
			wantText(t, "CompareAndSwap of a command", err, fmt.Sprintf("%q", key), "nothing was written", "names of letters, digits")
			_, err = doc.Get(t.Context())
			wantIs(t, "Get", err, consul.ErrRefused)
			wantText(t, "Get", err, fmt.Sprintf("%q", key), "names of letters, digits")
		} else if got := mustGet(t, doc); got.Exists {
			t.Errorf("key %q holds %q before it is written", key, got.Value)
		}
		e := mustSwap(t, doc, kv.Entry[string]{}, "v") // an agent's write, which asks for no name
		pairs, err := root.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := doc.Find(pairs); err != nil || got.Value != "v" {
			t.Errorf("List has %+v, %v for key %q", got, err, key)
		}
		if !refuses(key) && mustGet(t, doc).Value != "v" {
			t.Errorf("key %q holds %q", key, mustGet(t, doc).Value)
		}
		if err := doc.Delete(t.Context(), e.Index); err != nil {
			t.Errorf("Delete of %q: %v", key, err)
		}
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	srv := consultest.Start(t, consultest.WithACL())
	root := kv.New(srv.Client(), "jorc/default")
	mustSwap(t, kv.NewText(root, "t/open"), kv.Entry[string]{}, "v")
	mustSwap(t, kv.NewText(root, "t/shut"), kv.Entry[string]{}, "v")
	reader := kv.New(srv.ClientWithToken(srv.NewToken(`key "jorc/default/t/open" { policy = "read" }`)), "jorc/default")
	stranger := kv.New(srv.ClientWithToken("12345678-0000-0000-0000-000000000000"), "jorc/default")
	if e := mustGet(t, kv.NewText(reader, "t/open")); e.Value != "v" {
		t.Errorf("Get = %+v", e)
	}
	_, err := kv.NewText(reader, "t/shut").Get(t.Context())
	wantIs(t, "Get", err, consul.ErrDenied)
	_, err = kv.NewText(reader, "t/open").CompareAndSwap(t.Context(), kv.Entry[string]{}, "x")
	wantIs(t, "CompareAndSwap", err, consul.ErrDenied)
	_, err = kv.NewText(stranger, "t/open").CompareAndSwap(t.Context(), kv.Entry[string]{}, "x")
	wantIs(t, "CompareAndSwap with an unknown token", err, consul.ErrDenied)
	_, err = kv.NewTextTree(reader, "t/").List(t.Context())
	wantIs(t, "List of what is partly hidden", err, consul.ErrDenied)
	_, err = kv.NewTextTree(reader, "t/").Names(t.Context())
	wantIs(t, "Names of what is partly hidden", err, consul.ErrDenied)
	r, err := reader.Txn().Get("t/shut").Get("t/open").Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.NewText(reader, "t/open").From(r); err != nil || e.Value != "v" {
		t.Errorf("From = %+v, %v", e, err)
	}
	_, err = kv.NewText(reader, "t/shut").From(r)
	wantIs(t, "From of a hidden key", err, consul.ErrDenied)
	_, err = reader.TryLock(t.Context(), "t/open", kv.LeaseOptions{})
	wantIs(t, "TryLock", err, consul.ErrDenied)
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"format":1,"n":1,"x":[1,{"y":null}]}`))
	f.Add([]byte(`{"":{},"FORMAT":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := kv.RoundTrip[counter](data, 1)
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q, which is no JSON", data, got)
		}
		again, err := kv.RoundTrip[counter](got, 1)
		if err != nil || string(again) != string(got) {
			t.Errorf("%q became %q, and that %q, %v", data, got, again, err)
		}
	})
}
