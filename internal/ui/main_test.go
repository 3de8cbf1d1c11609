package ui_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/ui"
	"github.com/jorc/jorc/internal/ui/uitest"
)

func TestMain(m *testing.M) { os.Exit(consultest.Main(m)) }

// fixture is a cluster with members in a real Consul, and its fleet.
type fixture struct {
	*uitest.Cluster
	t    testing.TB
	name string
}

// newFixture returns a cluster of the hosts a, b and c: a and b run v1, c is critical
// and has failed to configure itself.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	s, name := consultest.Shared(t)
	return newFixtureOn(t, s, s.Client(), name)
}

func newFixtureOn(t testing.TB, s *consultest.Server, client *consul.Client, name string) *fixture {
	t.Helper()
	f := &fixture{Cluster: uitest.New(t, s, client, name), t: t, name: name}
	for node, check := range map[string]string{"a": "passing", "b": "passing", "c": "critical"} {
		f.JoinHost(uitest.Host{Name: node, Role: "app", Service: "web", Check: check})
	}
	for _, node := range []string{"a", "b"} {
		f.Must(f.ReportVersion(t.Context(), f.Node(node), "v1"))
	}
	f.Must(f.SetState(t.Context(), f.Node("c"), cluster.CategoryConfig, cluster.CategoryState{State: cluster.StateFailed, Detail: "no space left on device"}))
	f.Run(ui.FleetOptions{Client: client, Prefix: "jorc", Default: name})
	return f
}

// fleet is the test's cluster as a viewer sees it.
func (f *fixture) fleet(sealed bool) *ui.Fleet {
	f.t.Helper()
	fleet, err := f.Fleets.Fleet(f.t.Context(), "", sealed)
	f.Must(nil, err)
	return fleet
}

// eventually waits for a snapshot that is as wanted; wanted returns what is missing.
func (f *fixture) eventually(what string, fleet *ui.Fleet, wanted func(*ui.Snapshot) string) *ui.Snapshot {
	f.t.Helper()
	var found *ui.Snapshot
	consultest.Eventually(f.t, what, func(ctx context.Context) error {
		s, err := fleet.Snapshot(ctx)
		if err != nil {
			return err
		}
		if missing := wanted(s); missing != "" {
			return fmt.Errorf("%s", missing)
		}
		found = s
		return nil
	})
	return found
}
