package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
)

// TestNoUnreadableKeys: Consul's transactions take any name, and no Consul reads some of
// them. They are not written; what others wrote can be deleted.
func TestNoUnreadableKeys(t *testing.T) {
	t.Parallel()
	server, prefix := consultest.Shared(t, shortSessions())
	s, ctx := kv.New(server.Client(), prefix), t.Context()
	for _, key := range []string{"a//b", "a/./b", "a/../b", "a/..", "a/.", "..", "a\x01b", "a\nb", "a\u200bb", "a//"} {
		if !server.Refuses(prefix + "/" + key) {
			t.Errorf("this Consul reads %q", key)
		}
		for what, txn := range map[string]*kv.Txn{"Set": s.Txn().Set(key, nil), "CAS": s.Txn().Set("good", nil).CAS(key, nil, 0)} {
			if _, err := txn.Commit(ctx); !errors.Is(err, kv.ErrBadKey) || !strings.Contains(err.Error(), fmt.Sprintf("%q", prefix+"/"+key)) {
				t.Errorf("%s of %q = %v; want ErrBadKey", what, key, err)
			}
		}
		if _, err := s.Txn().Delete(key).Commit(ctx); err != nil {
			t.Errorf("Delete of %q: %v", key, err)
		}
	}
	if list, err := s.List(ctx, ""); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v; want nothing", list, err)
	}
	for _, key := range []string{"a b", "ü", "a/.b", "a/b..c", "a%20b", "a/"} {
		if _, err := s.Txn().Set(key, nil).Commit(ctx); err != nil {
			t.Errorf("Set of %q: %v", key, err)
		}
	}
}

// silent records nothing; with a recorder, a write is that of a command.
type silent struct{}

func (silent) Record(context.Context, *kv.Store, *kv.Txn, []kv.Write) error { return nil }

// TestCommandsWriteNoRefusedKeys: a command writes no key that this Consul refuses to read, and
// nothing else of its transaction. It may delete such a key.
func TestCommandsWriteNoRefusedKeys(t *testing.T) {
	t.Parallel()
	server, prefix := consultest.Shared(t, shortSessions())
	proxy := server.Strict()
	s, ctx := kv.New(proxy.Client(), prefix), kv.WithRecorder(t.Context(), silent{})
	if _, err := s.Txn().Set("good", nil).Set("v1+b/n1", nil).Commit(ctx); !errors.Is(err, consul.ErrRefused) || !strings.Contains(err.Error(), "v1+b/n1") {
		t.Errorf("Commit = %v; want ErrRefused with the key", err)
	}
	if list, err := s.List(ctx, ""); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v; want nothing", list, err)
	}
	if _, err := s.Txn().Set("v1+b/n1", nil).Commit(t.Context()); err != nil { // an agent's projection
		t.Errorf("Commit of an agent: %v", err)
	}
	if _, err := s.Txn().Delete("v1+b/n1").Commit(ctx); err != nil {
		t.Errorf("Delete: %v", err)
	}
	asked := proxy.Asked("/v1/kv/")
	if _, err := s.Txn().Set("good", nil).Set("good/too", nil).Commit(ctx); err != nil {
		t.Error(err)
	}
	if n := proxy.Asked("/v1/kv/") - asked; n > 0 {
		t.Errorf("%d requests to find out that Consul takes plain names", n)
	}
}

// TestRefusedLock: a lock whose key Consul refuses is not waited for.
func TestRefusedLock(t *testing.T) {
	t.Parallel()
	server, prefix := consultest.Shared(t, shortSessions())
	s := kv.New(server.Strict().Client(), prefix)
	if _, err := s.Lock(t.Context(), "v1+b", kv.LeaseOptions{}); !errors.Is(err, consul.ErrRefused) {
		t.Errorf("Lock = %v; want ErrRefused", err)
	}
}
