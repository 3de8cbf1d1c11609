package slots_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/slots"
)

// quick is claims whose loss does not take long.
var quick = slots.Options{TTL: time.Second}

func newServer(t testing.TB, o ...consultest.Option) *consultest.Server {
	t.Helper()
	return consultest.Start(t, append(o, manyHosts())...)
}

// manyHosts lets one address have the connections of many hosts.
func manyHosts() consultest.Option {
	return consultest.WithConfig(map[string]any{
		"session_ttl_min": "500ms", "limits": map[string]any{"http_max_conns_per_client": 4000},
	})
}

func store(srv *consultest.Server) *kv.Store { return kv.New(srv.Client(), "jorc/default") }

// host returns the slots as a process of its own has them.
func host(t testing.TB, client *consul.Client) *slots.Slots {
	t.Helper()
	s := slots.New(kv.New(client, "jorc/default"), quick)
	return s
}

// steady is a host whose sessions outlive a busy machine: for tests of an order
// that who loses its place would change.
func steady(t testing.TB, client *consul.Client) *slots.Slots {
	t.Helper()
	s := slots.New(kv.New(client, "jorc/default"), slots.Options{TTL: time.Minute})
	return s
}

func mustAcquire(t testing.TB, s *slots.Slots, group string, limit int, h slots.Holder) *kv.Lease {
	t.Helper()
	c, err := s.Acquire(context.Background(), group, limit, h)
	if err != nil {
		t.Fatalf("Acquire(%q, %d, %+v): %v", group, limit, h, err)
	}
	t.Cleanup(func() { _ = c.Release(context.Background()) }) // not every test's Consul is there at its end
	return c
}

func mustRelease(t testing.TB, c *kv.Lease) {
	t.Helper()
	if err := c.Release(context.Background()); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func mustShow(t testing.TB, s *slots.Slots, group string) slots.View {
	t.Helper()
	v, _, err := s.Show(t.Context(), group)
	if err != nil {
		t.Fatalf("Show(%q): %v", group, err)
	}
	return v
}

// got is what an Acquire in the background came to.
type got struct {
	claim *kv.Lease
	err   error
}

// waiting acquires in the background and returns when the claim is in the queue.
func waiting(t *testing.T, ctx context.Context, s *slots.Slots, group string, h slots.Holder) <-chan got {
	t.Helper()
	return waitingOf(t, ctx, s, group, slots.Keep, h)
}

// waitingOf is waiting with a limit.
func waitingOf(t *testing.T, ctx context.Context, s *slots.Slots, group string, limit int, h slots.Holder) <-chan got {
	t.Helper()
	result := make(chan got, 1)
	go func() {
		c, err := s.Acquire(ctx, group, limit, h)
		result <- got{c, err}
	}()
	until(t, s, group, fmt.Sprintf("%s of %s in the queue", h.Reason, h.Node), func(v slots.View) bool {
		return has(v.Queue, h)
	})
	return result
}

// mustGet waits for an Acquire in the background.
func mustGet(t *testing.T, result <-chan got) *kv.Lease {
	t.Helper()
	r := <-result
	if r.err != nil {
		t.Fatalf("Acquire: %v", r.err)
	}
	t.Cleanup(func() { _ = r.claim.Release(context.Background()) })
	return r.claim
}

func until(t testing.TB, s *slots.Slots, group, what string, good func(slots.View) bool) {
	t.Helper()
	consultest.Eventually(t, what, func(ctx context.Context) error {
		v, _, err := s.Show(ctx, group)
		if err == nil && !good(v) {
			err = fmt.Errorf("not yet: %+v", v)
		}
		return err
	})
}

func has(entries []slots.Entry, h slots.Holder) bool {
	return slices.ContainsFunc(entries, func(e slots.Entry) bool { return e.Node == h.Node && e.Reason == h.Reason })
}

// holder is a claim that its reason identifies.
func holder(reason string) slots.Holder { return slots.Holder{Node: "n1", Reason: reason} }

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v; want %v", what, err, want)
	}
}

// wantFree wants that no claim of the group is left.
func wantFree(t *testing.T, s *slots.Slots) {
	t.Helper()
	if v := mustShow(t, s, "g"); len(v.Holders)+len(v.Queue) != 0 {
		t.Errorf("Show = %+v; want no claims", v)
	}
}

// put writes a key as a person or a restored backup does.
func put(t *testing.T, srv *consultest.Server, key, value string) {
	t.Helper()
	if err := srv.Client().KVPut(t.Context(), &consul.KVPair{Key: "jorc/default/" + key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// keyOf returns the key of the claim with this reason, below slots/.
func keyOf(t *testing.T, srv *consultest.Server, reason string) *consul.KVPair {
	t.Helper()
	pairs, _, err := srv.Client().KVList(t.Context(), "jorc/default/slots/claim/", consul.Query{})
	for _, p := range pairs {
		if strings.Contains(string(p.Value), `"reason":"`+reason+`"`) {
			return p
		}
	}
	t.Fatalf("no claim with the reason %q, %v", reason, err)
	return nil
}
