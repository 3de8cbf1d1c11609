package slots_test

import (
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// TestShowAll: one request reads all groups, and a node's slots are named with their
// reasons.
func TestShowAll(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	proxy := srv.Proxy()
	s := slots.New(kv.New(srv.Client(), "jorc/prod"), slots.Options{})
	for _, group := range []string{"a", "b"} {
		lease, err := s.Acquire(t.Context(), group, 2, slots.Holder{Node: "n1", Reason: "reload of " + group})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(t.Context()) }() // the server ends with the test
	}
	counted := slots.New(kv.New(proxy.Client(), "jorc/prod"), slots.Options{})
	all, unreadable, err := counted.ShowAll(t.Context())
	if err != nil || unreadable != nil || len(all) != 2 || all[0].Group != "a" || all[1].Max != 2 || len(all[1].Holders) != 1 {
		t.Errorf("ShowAll = %+v, %v, %v", all, unreadable, err)
	}
	if n := proxy.Asked("/v1/kv/"); n != 1 {
		t.Errorf("ShowAll made %d requests, want 1", n)
	}
	claims, err := s.OfNode(t.Context(), "n1")
	if err != nil || len(claims) != 2 || !strings.HasPrefix(claims[0], `it holds a slot of group "a" since `) || !strings.HasSuffix(claims[0], ": reload of a") {
		t.Errorf("OfNode = %q, %v", claims, err)
	}
	if claims, err := s.OfNode(t.Context(), "n2"); err != nil || len(claims) != 0 {
		t.Errorf("OfNode of another node = %q, %v", claims, err)
	}
}
