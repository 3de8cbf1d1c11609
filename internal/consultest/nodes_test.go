package consultest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
)

// TestBystanders: a new leader deregisters at once the nodes that it does not know, but
// no bystander, whose check stays what the test made it.
func TestBystanders(t *testing.T) {
	t.Parallel()
	servers := consultest.StartCluster(t, 3)
	client := servers[0].Client()
	addr, err := client.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader := slices.IndexFunc(servers, func(s *consultest.Server) bool { return strings.HasPrefix(addr, s.IP+":") })
	others := slices.Delete(slices.Clone(servers), leader, leader+1)
	client = others[0].Client()
	for node, status := range map[string]string{"kept": "critical", "unknown": "passing"} {
		err := client.CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, Address: "10.0.0.1", Checks: consul.HealthChecks{{Node: node, CheckID: "serfHealth", Name: "gossip", Status: status}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range others {
		s.Bystanders("kept")
	}
	servers[leader].Kill()
	others[0].WaitLeader()
	consultest.Eventually(t, "the leader to deregister the unknown node", func(ctx context.Context) error {
		checks, _, err := client.HealthState(ctx, "any", consul.Query{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, c := range checks {
			got[c.Node] = c.Status
		}
		if got["unknown"] != "" || got["kept"] != "critical" {
			return fmt.Errorf("got %v", got)
		}
		return nil
	})
}
