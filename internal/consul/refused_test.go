package consul_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestRefusedKeys: a name that Consul refuses is an error of that key, in every request, and
// no outage. What is refused depends on Consul's version: which one is asked.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	strict := s.Strict()
	put(t, s.Client(), "target", "untouched")
	// Every version refuses these.
	for _, key := range []string{"x//target", "x/./target", "x/../target", "x/..", "x/a\x01b", "x/a\nb", "x/a\u200bb"} {
		if !s.Refuses(key) {
			t.Errorf("this Consul takes %q", key)
		}
		wantRefused(t, s.Client(), key)
	}
	// 1.21 refuses these.
	for _, key := range []string{"x/v1+b", "x/v1~b", "x/v1:b", "x/v1@b", "x/ü", "x/a b", "x/a%20b"} {
		wantRefused(t, strict.Client(), key)
	}
	if _, _, err := strict.Client().KVGet(t.Context(), "x/ü", consul.Query{}); err == nil || !strings.Contains(err.Error(), "names of letters, digits, '-', '_' and '.' work with every version") {
		t.Errorf("KVGet of a refused name says %v; want which names every Consul takes", err)
	}
	// 1.22 refuses the first four.
	for _, key := range []string{"x/ b ", " x", "x/%2e%2e/b", "x/a%20b", "x/a b", "x/v1+b", "x/ü", "x/.hidden", "x/a,b?c&d=e"} {
		if s.Refuses(key) {
			wantRefused(t, s.Client(), key)
			continue
		}
		put(t, s.Client(), key, "1")
		if p, _, err := s.Client().KVGet(t.Context(), key, consul.Query{}); err != nil || p == nil || p.Key != key {
			t.Errorf("KVGet(%q) = %v, %v", key, p, err)
		}
	}
	if p, _, err := s.Client().KVGet(t.Context(), "target", consul.Query{}); err != nil || string(p.Value) != "untouched" {
		t.Errorf("another key was written: %v, %v", p, err)
	}
}

func wantRefused(t *testing.T, c *consul.Client, key string) {
	t.Helper()
	ctx := t.Context()
	pair := &consul.KVPair{Key: key, Value: []byte("secret-value")}
	for what, ask := range map[string]func() error{
		"KVGet":        func() error { _, _, err := c.KVGet(ctx, key, consul.Query{}); return err },
		"KVList":       func() error { _, _, err := c.KVList(ctx, key, consul.Query{}); return err },
		"KVKeys":       func() error { _, _, err := c.KVKeys(ctx, key, "/", consul.Query{}); return err },
		"KVPut":        func() error { return c.KVPut(ctx, pair) },
		"KVCAS":        func() error { _, err := c.KVCAS(ctx, pair); return err },
		"KVDeleteCAS":  func() error { _, err := c.KVDeleteCAS(ctx, key, 7); return err },
		"KVDeleteTree": func() error { return c.KVDeleteTree(ctx, key) },
	} {
		err := ask()
		if !errors.Is(err, consul.ErrRefused) || errors.Is(err, consul.ErrUnreachable) || errors.Is(err, consul.ErrOutcomeUnknown) || !consul.IsPermanent(err) {
			t.Errorf("%s(%q) = %v; want ErrRefused alone", what, key, err)
		} else if text := err.Error(); !strings.Contains(text, fmt.Sprintf("%q", key)) || strings.Contains(text, "secret-value") {
			t.Errorf("%s(%q) says %q", what, key, text)
		}
	}
	if st := c.Stats(); st.Failures != 0 || !st.UnreachableSince.IsZero() {
		t.Errorf("%q counts as an outage: %+v", key, st)
	}
}

// TestRefusedKeysIsCheap: names that every Consul takes are not asked about, and the others
// once for each new character.
func TestRefusedKeysIsCheap(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	for _, proxy := range []*consultest.Proxy{s.Proxy(), s.Strict()} {
		c := proxy.Client()
		var plain, plus []string
		for i := range 100 {
			plain = append(plain, fmt.Sprintf("a-b/%d_c.d/?e=f&g,", i))
			plus = append(plus, fmt.Sprintf("a/v%d+b", i))
		}
		if refused, err := c.RefusedKeys(t.Context(), plain...); len(refused) > 0 || err != nil {
			t.Errorf("RefusedKeys = %v, %v; want none", refused, err)
		}
		if n := proxy.Asked("/v1/kv/"); n != 0 {
			t.Errorf("it asked %d times about names that every Consul takes", n)
		}
		refused, err := c.RefusedKeys(t.Context(), plus...)
		if n := proxy.Asked("/v1/kv/"); n != 1 || err != nil || len(refused) != 0 && len(refused) != len(plus) {
			t.Errorf("%d requests about one character; %d of %d refused, %v", n, len(refused), len(plus), err)
		}
		for name, err := range refused {
			if !errors.Is(err, consul.ErrRefused) || !strings.Contains(err.Error(), name) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	away := s.Proxy()
	away.Do(func(*http.Request) consultest.Fault { return consultest.Fault{Status: 500} })
	if _, err := away.Client().RefusedKeys(t.Context(), "a+b"); !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("RefusedKeys of a Consul that fails = %v; want ErrUnreachable", err)
	}
}

// TestTooLarge: a request beyond Consul's limits is an error of its own, and was not carried out.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, consultest.WithConfig(map[string]any{"limits": map[string]any{"kv_max_value_size": 1000, "txn_max_req_len": 2000}}))
	c, ctx := s.Client(), t.Context()
	value := make([]byte, 400<<10)
	set := func(key string, value []byte) consul.TxnOps {
		return consul.TxnOps{{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: key, Value: value}}}
	}
	many := consul.TxnOps{}
	for range 129 {
		many = append(many, set("n", nil)...)
	}
	long := strings.Repeat("k", 2<<20)
	for what, ask := range map[string]func(context.Context) error{
		"value": func(ctx context.Context) error { return c.KVPut(ctx, &consul.KVPair{Key: "big", Value: value}) },
		"swap": func(ctx context.Context) error {
			_, err := c.KVCAS(ctx, &consul.KVPair{Key: "big", Value: value})
			return err
		},
		"transaction": func(ctx context.Context) error { _, _, err := c.Txn(ctx, "big", set("big", value)); return err },
		"its value":   func(ctx context.Context) error { _, _, err := c.Txn(ctx, "big", set("big", value[:1001])); return err },
		"operations":  func(ctx context.Context) error { _, _, err := c.Txn(ctx, "n", many); return err },
		"name":        func(ctx context.Context) error { _, _, err := c.KVGet(ctx, long, consul.Query{}); return err },
	} {
		if err := ask(ctx); !errors.Is(err, consul.ErrTooLarge) || errors.Is(err, consul.ErrOutcomeUnknown) || !consul.IsPermanent(err) {
			t.Errorf("%s = %.300v; want ErrTooLarge", what, err)
		}
	}
	if list, _, err := c.KVKeys(ctx, "", "", consul.Query{}); len(list) != 0 || err != nil {
		t.Errorf("something was written: %v, %v", list, err)
	}
	if st := c.Stats(); st.Failures != 0 {
		t.Errorf("it counts as an outage: %+v", st)
	}
}
