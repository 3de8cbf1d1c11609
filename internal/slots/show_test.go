package slots_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
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
	o, err := counted.ShowAll(t.Context())
	all := o.Groups
	if err != nil || o.Unreadable != nil || len(all) != 2 || all[0].Group != "a" || all[1].Max != 2 || len(all[1].Holders) != 1 {
		t.Errorf("ShowAll = %+v, %v", o, err)
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

// TestManyGroups: a host's token may create groups. What all of them cost to show
// follows their number, and the ones beyond the bound are named.
func TestManyGroups(t *testing.T) { // alone: it counts allocations
	srv := newServer(t)
	s := steady(t, srv.Client())
	defer mustRelease(t, mustAcquire(t, s, "zz-used", 1, holder("a")))
	create := func(from, to int) {
		t.Helper()
		for ; from < to; from += kv.MaxOps {
			var ops consul.TxnOps
			for i := from; i < min(from+kv.MaxOps, to); i++ {
				ops = append(ops, &consul.TxnOp{KV: &consul.KVTxnOp{
					Verb: consul.KVSet, Key: fmt.Sprintf("jorc/default/slots/group/g%05d", i), Value: []byte(`{"format":1,"max":1}`),
				}})
			}
			if ok, _, err := srv.Client().Txn(t.Context(), "groups", ops); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
	}
	cost := func() float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := s.ShowAll(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	create(0, 500)
	few := cost()
	const all = 4000
	create(500, all)
	if many := cost(); many > 2*few*all/500 {
		t.Errorf("%.0f allocations for %d groups, %.0f for 500; want that they follow the number of groups", many, all, few)
	} else {
		t.Logf("%.0f allocations for %d groups, %.0f for 500", many, all, few)
	}
	o, err := s.ShowAll(t.Context())
	if err != nil || len(o.Groups) != slots.MostGroups || len(o.Groups)+len(o.Unlisted) != all+1 {
		t.Fatalf("%d groups, %d unlisted, %v", len(o.Groups), len(o.Unlisted), err)
	}
	if last := o.Groups[len(o.Groups)-1]; last.Group != "zz-used" || len(last.Holders) != 1 {
		t.Errorf("the last group is %+v; want the one with a claim", last)
	}
	want := `3001 slot groups are not listed, from "g00999" to "g03999": at most 1000 are; 'jorc cluster slots GROUP' shows one`
	if got := o.MoreText(); got != want {
		t.Errorf("MoreText:\ngot  %s\nwant %s", got, want)
	}
	if claims, err := s.OfNode(t.Context(), "n1"); err != nil || len(claims) != 1 {
		t.Errorf("OfNode = %q, %v", claims, err)
	}
}
