package consulmodel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consulmodel"
	"github.com/jorc/jorc/internal/consultest"
)

// carrier carries requests to a model: it is the transport of a client.
type carrier struct{ model *consulmodel.Model }

// RoundTrip implements http.RoundTripper.
func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	a := c.model.Do(r.Method, r.URL.Path, r.URL.RawQuery, body, time.Now()).Answer()
	if a == nil {
		return nil, fmt.Errorf("the model blocks: %s", r.URL)
	}
	resp := &http.Response{StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)), Request: r}
	resp.Header.Set("X-Consul-Index", strconv.FormatUint(a.Index, 10))
	return resp, nil
}

// inventory is what jorc's client reads of a catalog, and the index of each answer.
type inventory struct {
	what    map[string]any
	indexes map[string]uint64
}

// inventoryOf reads everything that jorc reads of the nodes whose names begin with prefix.
func inventoryOf(ctx context.Context, c *consul.Client, prefix string, nodes []string) (inventory, error) {
	got := inventory{map[string]any{}, map[string]uint64{}}
	var failed error
	ours := func(name string) bool { return strings.HasPrefix(name, prefix) }
	note := func(name string, what any, meta consul.Meta, err error) {
		if failed == nil && err != nil {
			failed = fmt.Errorf("%s: %w", name, err)
		}
		got.what[name], got.indexes[name] = what, meta.Index
	}
	hosts, meta, err := c.CatalogHosts(ctx, consul.Query{})
	note("hosts", only(hosts, func(n consul.NodeInfo) bool { return ours(n.Node) }), meta, err)
	all, meta, err := c.Inventory(ctx, consul.Query{})
	note("inventory", only(all, func(n consul.NodeInfo) bool { return ours(n.Node) }), meta, err)
	services, meta, err := c.ServiceHosts(ctx, consul.Query{})
	note("services", only(services, func(s consul.ServiceHosts) bool { return ours(s.Service) }), meta, err)
	indexes, meta, err := c.NodeIndexes(ctx, consul.Query{})
	registered := []any{}
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		if ours(name) {
			registered = append(registered, map[string]any{"Node": name, "ModifyIndex": indexes[name]})
		}
	}
	note("node indexes", registered, meta, err)
	for _, state := range []string{"any", consul.HealthPassing, consul.HealthCritical} {
		checks, meta, err := c.ChecksInState(ctx, state, consul.Query{})
		note("checks "+state, only(checks, func(k consul.CheckState) bool { return ours(k.Node) }), meta, err)
		indexes, meta, err := c.CheckIndexesIn(ctx, state, consul.Query{})
		note("check indexes "+state, only(indexes, func(k consul.CheckIndex) bool { return ours(k.Node) }), meta, err)
	}
	for _, node := range nodes {
		one, meta, err := c.InventoryOf(ctx, node, consul.Query{})
		note("node "+node, one, meta, err)
		indexes, meta, err := c.NodeServiceIndexes(ctx, node, consul.Query{})
		note("services of "+node, indexes, meta, err)
		checks, meta, err := c.HealthNode(ctx, node, consul.Query{})
		states := []consul.CheckState{}
		for _, k := range checks {
			states = append(states, consul.CheckState{Node: k.Node, CheckID: k.CheckID, Status: k.Status, Notes: k.Notes, ServiceID: k.ServiceID, ServiceName: k.ServiceName})
		}
		note("health of "+node, states, meta, err)
	}
	return got, failed
}

// only returns those of all that are wanted.
func only[T any](all []T, want func(T) bool) []T {
	return append([]T{}, slices.DeleteFunc(all, func(v T) bool { return !want(v) })...)
}

// TestCatalogAgainstConsul: after the same registrations jorc's client reads the same from the model and from a real Consul:
// nodes, services, checks, and when each changed, in the same order. Where the index of an answer rises, so that a blocking
// query wakes, that of the model does; its others may rise, too.
func TestCatalogAgainstConsul(t *testing.T) {
	server := consultest.Start(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			prefix := fmt.Sprintf("seed%d-", seed)
			w := newTwins(t, server, prefix)
			model, err := consul.New(config.Consul{}, consul.WithTransport(carrier{w.model}))
			if err != nil {
				t.Fatal(err)
			}
			real := server.Client()
			r := rand.New(rand.NewPCG(seed, 1))
			nodes := []string{prefix + "a", prefix + "b", prefix + "c"}
			before := pair[inventory]{}
			for range 120 {
				w.catalogued(r, pair[*consul.Client]{real, model}, nodes, prefix)
				var now pair[inventory]
				if now.real, err = inventoryOf(t.Context(), real, prefix, nodes); err != nil {
					t.Fatal(err)
				}
				if now.model, err = inventoryOf(t.Context(), model, prefix, nodes); err != nil {
					t.Fatal(err)
				}
				for name, what := range now.real.what {
					got, want := decoded(t, now.model.what[name]), decoded(t, what)
					if !w.equal(name, "", want, got) {
						w.fail("%s: the answers differ\nConsul %s\nmodel  %s", name, text(t, want), text(t, got))
					}
					changed := text(t, want) != text(t, decoded(t, before.real.what[name]))
					if changed && now.real.indexes[name] > before.real.indexes[name] && now.model.indexes[name] <= before.model.indexes[name] {
						w.fail("%s: Consul's answer has index %d after %d, the model's %d after %d", name, now.real.indexes[name], before.real.indexes[name], now.model.indexes[name], before.model.indexes[name])
					}
				}
				before = now
			}
		})
	}
}

func decoded(t *testing.T, v any) (d any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text(t, v)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// catalogued registers something with both, or deregisters it.
func (w *twins) catalogued(r *rand.Rand, clients pair[*consul.Client], nodes []string, prefix string) {
	w.t.Helper()
	node, service := nodes[r.IntN(len(nodes))], prefix+[]string{"web", "db"}[r.IntN(2)]
	id := service + strconv.Itoa(r.IntN(2))
	check := func(of string) *consul.AgentCheck {
		return &consul.AgentCheck{Node: node, CheckID: "check-" + strconv.Itoa(r.IntN(3)) + of, Name: "check", Status: []string{consul.HealthPassing, consul.HealthCritical}[r.IntN(2)], Notes: []string{"", "note"}[r.IntN(2)], ServiceID: of}
	}
	reg := &consul.CatalogRegistration{Node: node, Address: "10.0.0." + strconv.Itoa(1+r.IntN(2)), NodeMeta: map[string]string{"zone": strconv.Itoa(r.IntN(2))}}
	out := &consul.CatalogDeregister{Node: node}
	both := func(what any, do func(*consul.Client) error) {
		w.t.Helper()
		w.log = append(w.log, text(w.t, what))
		real, model := do(clients.real), do(clients.model)
		if (real == nil) != (model == nil) {
			w.fail("Consul says %v, the model %v", real, model)
		}
	}
	register := func() {
		w.t.Helper()
		both(reg, func(c *consul.Client) error { return c.CatalogRegister(w.t.Context(), reg) })
	}
	deregister := func() {
		w.t.Helper()
		both(out, func(c *consul.Client) error { return c.CatalogDeregister(w.t.Context(), out) })
	}
	switch r.IntN(10) {
	case 0:
		register()
	case 1, 2:
		reg.Service = &consul.AgentService{ID: id, Service: service}
		register()
	case 3, 4, 5:
		reg.Check = check("")
		register()
	case 6:
		reg.Service, reg.Check = &consul.AgentService{ID: id, Service: service}, check(id)
		register()
	case 7:
		out.ServiceID = id
		deregister()
	case 8:
		out.CheckID = "check-" + strconv.Itoa(r.IntN(3))
		deregister()
	case 9:
		if r.IntN(3) == 0 {
			deregister()
		}
	}
}
