package fleet_test

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
	"github.com/jorc/jorc/internal/fleet"
)

// TestRunning: versions are exact, and what is read does not grow with hosts.
func TestRunning(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t)
	proxy := s.Proxy()
	counted := fleet.New(proxy.Client(), "jorc", "default")
	asked := func() int { return proxy.Asked("/") }
	if got := reports(t, l).RunningVersions(); len(got) > 0 {
		t.Errorf("without hosts: %v", got)
	}
	sizes := map[int]int{} // requests by number of hosts
	for _, n := range []int{3, 30} {
		for i := range n {
			mustReport(t, l, fmt.Sprintf("n%02d", i), []string{"v1", "v10", "v2"}[i%3])
		}
		before := asked()
		s := reports(t, counted)
		if got := s.RunningVersions(); !slices.Equal(got, []string{"v1", "v10", "v2"}) {
			t.Errorf("RunningVersions = %v", got)
		}
		if hosts := s.HostsRunning("v1"); len(hosts) != n/3 || hosts[0] != "n00" {
			t.Errorf("HostsRunning(v1) = %v", hosts)
		}
		if _, err := counted.ReportVersion(t.Context(), "n00", "v1"); err != nil {
			t.Error(err)
		}
		sizes[n] = asked() - before
	}
	if sizes[3] != sizes[30] {
		t.Errorf("requests by hosts: %v", sizes)
	}
	if got := reports(t, l).HostsRunning("v"); len(got) > 0 {
		t.Errorf("HostsRunning(v) = %v", got)
	}
}

// reports are what the hosts report.
func reports(t *testing.T, l *fleet.Cluster) *cluster.State {
	t.Helper()
	s, err := l.LoadReports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &s
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
		got := reports(t, l).HostsNotRunning("v1", strings.Fields(test.hosts))
		var text []string
		for _, e := range got {
			text = append(text, e.Host+" "+e.Version)
		}
		if strings.Join(text, ", ") != test.want {
			t.Errorf("Verify(v1, %s) = %v; want %s", test.hosts, got, test.want)
		}
	}
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("m%03d", i)
	}
	if got := reports(t, l).HostsNotRunning("v1", many); len(got) != 200 {
		t.Errorf("Verify of 200: %d", len(got))
	}
	if err := s.Client().KVDeleteTree(t.Context(), "jorc/default/running_version/v1/"); err != nil {
		t.Fatal(err)
	}
	if got := reports(t, l).HostsNotRunning("v1", []string{"n1"}); len(got) > 0 {
		t.Errorf("Verify without index keys: %v", got)
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
	if got, err := fleet.New(proxy.Client(), "jorc", "default").UniqueVersion(t.Context(), "v1"); err != nil || !got.Single {
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
		s.Bystanders(name)
		r.Check = &consul.AgentCheck{Node: name, CheckID: "serfHealth", Name: "Serf Health Status", Status: status, Output: "said by gossip"}
	}
	if err := s.Client().CatalogRegister(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}
