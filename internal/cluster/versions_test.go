package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
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
	wantIs(t, "a bad version", err, cluster.ErrBadName)
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
	wantIs(t, "a bad host", err, cluster.ErrBadName)
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
