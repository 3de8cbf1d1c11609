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

func TestKVListWithOddKeysAndValues(t *testing.T) {
	t.Parallel()
	c, ctx := consultest.Start(t).Client(), t.Context()
	const prefix = "odd prefix?#%/"
	keys := []string{"", "a b", "a/b", `a"b`, `a\b`, "100%", "ü", "a?b=c", "a#b", "{}"}
	slices.Sort(keys)
	for i, key := range keys {
		pair := &consul.KVPair{Key: prefix + key, Value: bytes.Repeat([]byte{0, 255, '"'}, i), Flags: ^uint64(i)}
		if err := c.KVPut(ctx, pair); err != nil {
			t.Fatal(err)
		}
	}
	list, meta, err := c.KVList(ctx, prefix, consul.Query{})
	if err != nil || len(list) != len(keys) || meta.Index == 0 {
		t.Fatalf("KVList = %d pairs, %+v, %v; want %d", len(list), meta, err, len(keys))
	}
	for i, pair := range list {
		want, _, err := c.KVGet(ctx, prefix+keys[i], consul.Query{})
		if err != nil || fmt.Sprint(pair) != fmt.Sprint(want) {
			t.Errorf("KVList has %v for %q; KVGet %v, %v", pair, keys[i], want, err)
		}
	}
	if list, meta, err := c.KVList(ctx, "absent/", consul.Query{}); list != nil || err != nil || meta.Index == 0 {
		t.Errorf("KVList of nothing = %v, %+v, %v; want nil, an index, nil", list, meta, err)
	}
	if _, _, err := c.KVList(ctx, "", consul.Query{Datacenter: "nowhere"}); !errors.Is(err, consul.ErrUnreachable) {
		t.Errorf("KVList in a datacenter that does not exist = %v; want ErrUnreachable", err)
	}
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
