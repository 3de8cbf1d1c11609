package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestKVListWithOddKeysAndValues: KVList returns what KVGet does, and also the keys that this
// Consul stores and refuses to read one by one.
func TestKVListWithOddKeysAndValues(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c, ctx := s.Client(), t.Context()
	keys := []string{"", "a b", "a/b", `a"b`, `a\b`, "100%", "ü", "a?b=c", "a,b&c", "a#b", "{}"}
	slices.Sort(keys)
	for _, prefix := range []string{"odd prefix?#%/", "odd,prefix?&=/", "plain/"} {
		for i, key := range keys {
			pair := &consul.KVPair{Key: prefix + key, Value: bytes.Repeat([]byte{0, 255, '"'}, i), Flags: ^uint64(i)}
			if !s.Refuses(pair.Key) {
				if err := c.KVPut(ctx, pair); err != nil {
					t.Fatal(err)
				}
				continue
			}
			wantRefused(t, c, pair.Key)
			set := &consul.KVTxnOp{Verb: consul.KVSet, Key: pair.Key, Value: pair.Value, Flags: pair.Flags}
			if ok, _, err := c.Txn(ctx, pair.Key, consul.TxnOps{{KV: set}}); err != nil || !ok {
				t.Fatalf("Txn on %q = %t, %v", pair.Key, ok, err)
			}
		}
		if s.Refuses(prefix) {
			continue // with its first key, which is "", wantRefused has asked for its list
		}
		list, meta, err := c.KVList(ctx, prefix, consul.Query{})
		if err != nil || len(list) != len(keys) || meta.Index == 0 {
			t.Fatalf("KVList = %d pairs, %+v, %v; want %d", len(list), meta, err, len(keys))
		}
		for i, pair := range list {
			want, err := stored(ctx, c, prefix+keys[i], s.Refuses(prefix+keys[i]))
			if err != nil || fmt.Sprint(pair) != fmt.Sprint(want) {
				t.Errorf("KVList has %v for %q, which is %v, %v", pair, keys[i], want, err)
			}
		}
	}
	if list, meta, err := c.KVList(ctx, "absent/", consul.Query{}); list != nil || err != nil || meta.Index == 0 {
		t.Errorf("KVList of nothing = %v, %+v, %v; want nil, an index, nil", list, meta, err)
	}
	if _, _, err := c.KVList(ctx, "", consul.Query{Datacenter: "nowhere"}); !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("KVList in a datacenter that does not exist = %v; want ErrUnreachable", err)
	}
}

// stored reads a key, in a transaction if Consul refuses other requests for it.
func stored(ctx context.Context, c *consul.Client, key string, refused bool) (*consul.KVPair, error) {
	if !refused {
		pair, _, err := c.KVGet(ctx, key, consul.Query{})
		return pair, err
	}
	r, err := c.TxnRead(ctx, key, consul.TxnOps{{KV: &consul.KVTxnOp{Verb: consul.KVGet, Key: key}}}, consul.Query{})
	if err != nil || len(r.Results) != 1 {
		return nil, fmt.Errorf("TxnRead(%q) = %+v, %w", key, r, err)
	}
	return r.Results[0].KV, nil
}

func TestIndexesAgreeWithWhatTheyAreOf(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c, ctx := s.Client(), t.Context()
	for i := range 3 {
		name := fmt.Sprintf(`web "%d"`, i)
		check := &consul.ServiceCheck{TTL: "1m", Status: consul.HealthPassing, Notes: `{"ModifyIndex": 1}`}
		if err := c.RegisterService(ctx, &consul.ServiceRegistration{ID: name, Name: name, Check: check}); err != nil {
			t.Fatal(err)
		}
	}
	consultest.Eventually(t, "indexes", func(ctx context.Context) error { return indexesAgree(ctx, c, s.Node) })
	absent, _, err := c.NodeServiceIndexes(ctx, "absent", consul.Query{})
	if absent != nil || err != nil {
		t.Errorf("NodeServiceIndexes of no node = %v, %v; want nil, nil", absent, err)
	}
}

func indexesAgree(ctx context.Context, c *consul.Client, node string) error {
	checks, _, err := c.HealthState(ctx, "any", consul.Query{})
	if err != nil {
		return err
	}
	whole, _, err := c.CatalogNode(ctx, node, consul.Query{})
	if err != nil {
		return err
	}
	var wantChecks, gotChecks []string
	for _, k := range checks {
		wantChecks = append(wantChecks, fmt.Sprint(consul.CheckIndex{Node: k.Node, CheckID: k.CheckID, ServiceName: k.ServiceName, ModifyIndex: k.ModifyIndex}))
	}
	wantServices := map[string]consul.ServiceIndex{}
	for id, service := range whole.Services {
		wantServices[id] = consul.ServiceIndex{Service: service.Service, ModifyIndex: service.ModifyIndex}
	}
	indexes, meta, err := c.CheckIndexes(ctx, consul.Query{})
	if err != nil {
		return err
	}
	for _, i := range indexes {
		gotChecks = append(gotChecks, fmt.Sprint(i))
	}
	services, _, err := c.NodeServiceIndexes(ctx, node, consul.Query{})
	if err != nil {
		return err
	}
	nodes, _, err := c.NodeIndexes(ctx, consul.Query{})
	if err != nil {
		return err
	}
	if len(gotChecks) < 3 || meta.Index == 0 || !slices.Equal(gotChecks, wantChecks) || fmt.Sprint(services) != fmt.Sprint(wantServices) ||
		nodes[node] != whole.Node.ModifyIndex {
		return fmt.Errorf("checks %v, services %v, nodes %v\nwant %v, %v, %d", gotChecks, services, nodes, wantChecks, wantServices, whole.Node.ModifyIndex)
	}
	return nil
}
