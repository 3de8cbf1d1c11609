package cluster_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/text"
)

// TestRunning: versions are exact, and what is read does not grow with hosts.
func TestRunning(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	proxy := s.Proxy()
	counted := cluster.New(proxy.Client(), "jorc", "default")
	asked := func() int { return proxy.Asked("/") }
	if got, err := l.RunningVersions(t.Context()); len(got) > 0 || err != nil {
		t.Errorf("of nobody: %v, %v", got, err)
	}
	sizes := map[int]int{} // requests by number of hosts
	for _, n := range []int{3, 30} {
		for i := range n {
			mustReport(t, l, fmt.Sprintf("n%02d", i), []string{"v1", "v10", "v2"}[i%3])
		}
		before := asked()
		if got, err := counted.RunningVersions(t.Context()); !slices.Equal(got, []string{"v1", "v10", "v2"}) || err != nil {
			t.Errorf("Running = %v, %v", got, err)
		}
		hosts, err := counted.HostsRunning(t.Context(), "v1")
		if len(hosts) != n/3 || hosts[0] != "n00" || err != nil {
			t.Errorf("Hosts(v1) = %v, %v", hosts, err)
		}
		if _, err := counted.ReportVersion(t.Context(), "n00", "v1"); err != nil {
			t.Error(err)
		}
		sizes[n] = asked() - before
	}
	if sizes[3] != sizes[30] {
		t.Errorf("requests by hosts: %v", sizes)
	}
	if got, err := l.HostsRunning(t.Context(), "v"); len(got) > 0 || err != nil {
		t.Errorf("Hosts(v) = %v, %v", got, err)
	}
	_, err := l.HostsRunning(t.Context(), "v1/n00")
	wantIs(t, "a bad version", err, text.ErrName)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	mustReport(t, l, "n1", "v1")
	mustReport(t, l, "n2", "v10")
	for _, test := range []struct {
		hosts, want string
	}{
		{"n1", ""},
		{"n1 n1", ""},
		{"n2 n1 n3 n2", "n2 v10, n3 "},
		{"n", "n "},
	} {
		got, err := l.HostsNotRunning(t.Context(), "v1", strings.Fields(test.hosts))
		var text []string
		for _, e := range got {
			text = append(text, e.Host+" "+e.Version)
		}
		if strings.Join(text, ", ") != test.want || err != nil {
			t.Errorf("Verify(v1, %s) = %v, %v; want %s", test.hosts, got, err, test.want)
		}
	}
	_, err := l.HostsNotRunning(t.Context(), "v1", []string{"a/b"})
	wantIs(t, "a bad host", err, text.ErrName)
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("m%03d", i)
	}
	if got, err := l.HostsNotRunning(t.Context(), "v1", many); len(got) != 200 || err != nil {
		t.Errorf("Verify of 200: %d, %v", len(got), err)
	}
	if err := s.Client().KVDeleteTree(t.Context(), "jorc/default/running_version/v1/"); err != nil {
		t.Fatal(err)
	}
	if got, err := l.HostsNotRunning(t.Context(), "v1", []string{"n1"}); len(got) > 0 || err != nil {
		t.Errorf("Verify where only the document tells: %v, %v", got, err)
	}
}

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
	single(false, 0) // no host runs it
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
	host(t, s, "logical", "") // gossip does not cover it, so it counts
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
