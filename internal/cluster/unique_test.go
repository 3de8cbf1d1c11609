package cluster_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

func TestSingle(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	single := func(want bool, others int, apart ...string) {
		t.Helper()
		got, err := l.UniqueVersion(t.Context(), "v1")
		var names []string
		for _, a := range got.Detached {
			names = append(names, a.Host+" "+string(a.Life))
			if a.Arrived == "" {
				t.Errorf("nothing is known of %+v", a)
			}
		}
		if err != nil || got.Single != want || len(got.Others) != others || !slices.Equal(names, apart) {
			t.Errorf("Single = %+v, %v; want %v, %d others, apart %v", got, err, want, others, apart)
		}
	}
	single(false, 0) // nobody runs it
	mustReport(t, l, s.Node, "v1")
	single(true, 0)
	for _, h := range []struct{ name, status, version string }{
		{"dead", "critical", "v10"}, {"gone", "-", "v10"}, {"old", "critical", "v0"}, {"fine", "passing", "v1"},
	} {
		if h.status != "-" {
			host(t, s, h.name, h.status)
		}
		mustReport(t, l, h.name, h.version)
	}
	single(true, 0, "old down", "dead down", "gone absent")
	host(t, s, "logical", "") // nobody watches over it, so it counts
	mustReport(t, l, "logical", "v2")
	single(false, 1, "old down", "dead down", "gone absent")
	host(t, s, "alive", "passing")
	mustReport(t, l, "alive", "v10")
	single(false, 2, "old down", "dead down", "gone absent")
	for i := range 40 { // more than a filter names
		mustReport(t, l, fmt.Sprintf("gone%d", i), "v3")
	}
	got, err := l.UniqueVersion(t.Context(), "v1")
	if err != nil || len(got.Others) != 2 || len(got.Detached) != 43 {
		t.Errorf("among many: %d others, %d apart, %v", len(got.Others), len(got.Detached), err)
	}
	for _, h := range []string{"alive", "logical"} {
		mustReport(t, l, h, "v1")
	}
	if got, err := l.UniqueVersion(t.Context(), "v1"); err != nil || !got.Single {
		t.Errorf("when all have come: %+v, %v", got, err)
	}
}

// TestSingleCost: when only one version runs, two requests tell.
func TestSingleCost(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	for i := range 20 {
		mustReport(t, l, fmt.Sprintf("n%d", i), "v1")
	}
	proxy := s.Proxy()
	var mu sync.Mutex
	var asked []string
	proxy.Do(func(r *http.Request) consultest.Fault {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		return consultest.Fault{}
	})
	if got, err := cluster.New(proxy.Client(), "jorc", "default").UniqueVersion(t.Context(), "v1"); err != nil || !got.Single {
		t.Errorf("Single = %+v, %v", got, err)
	}
	if len(asked) != 2 {
		t.Errorf("it asked for %v", asked)
	}
}

// host puts a host into the catalog, with gossip's check in a state; empty:
// without it.
func host(t testing.TB, s *server, name, status string) {
	t.Helper()
	r := &consul.CatalogRegistration{Node: name, Address: "10.9.9.9"}
	if status != "" {
		r.Check = &consul.AgentCheck{Node: name, CheckID: "serfHealth", Name: "Serf Health Status", Status: status, Output: "said by gossip"}
	}
	if err := s.Client().CatalogRegister(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}
