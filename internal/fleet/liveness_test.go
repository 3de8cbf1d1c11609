package fleet_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jorc/jorc/internal/clustertest"
	"github.com/jorc/jorc/internal/consul"
)

// TestConditions: the facts come from Consul as the table says: whose maintenance
// mode it is, jorc's own check, the jorc of another cluster, no gossip, no node.
func TestConditions(t *testing.T) {
	t.Parallel()
	c, s := clustertest.Initialized(t)
	check := func(node, id, status, notes string) {
		t.Helper()
		err := s.Client().CatalogRegister(t.Context(), &consul.CatalogRegistration{
			Node: node, SkipNodeUpdate: true,
			Checks: consul.HealthChecks{{Node: node, CheckID: id, Name: id, Status: status, Notes: notes}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"well", "own", "both", "sick"} {
		clustertest.AddNode(t, s, node, "passing", "passing")
	}
	clustertest.AddNode(t, s, "dead", "critical", "passing")
	clustertest.AddNode(t, s, "stopped", "passing", "critical")
	check("own", "_node_maintenance", "critical", "jorc: update to v2")
	check("both", "_node_maintenance", "critical", "jorc: update to v2")
	check("both", "_service_maintenance:web", "critical", "ann: disks")
	check("sick", "disk", "critical", "")
	for _, r := range []*consul.CatalogRegistration{
		{Node: "external", Address: "10.0.0.9"},
		{Node: "other", Address: "10.0.0.9", Service: &consul.AgentService{ID: "jorc-test", Service: "jorc"}, Checks: consul.HealthChecks{
			{Node: "other", CheckID: "serfHealth", Name: "gossip", Status: "passing"},
			{Node: "other", CheckID: "service:jorc-test", ServiceID: "jorc-test", ServiceName: "jorc", Status: "critical"},
		}},
	} {
		if err := s.Client().CatalogRegister(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"well": "up up passing none ", "own": "up up maintenance own maintenance", "both": "up up maintenance foreign maintenance",
		"sick": "up up critical none critical", "dead": "down down critical none down", "stopped": "up down passing none down",
		"external": "unmonitored down passing none down", "other": "up down passing none down", "nowhere": "absent down  none down",
	}
	got, err := c.Conditions(t.Context(), slices.Sorted(maps.Keys(want)))
	if err != nil {
		t.Fatal(err)
	}
	for node, text := range want {
		one := got[node]
		words := []string{string(one.Liveness), one.Agent, one.Health, string(one.Maintenance), string(one.OutOfService(false))}
		if is := strings.Join(words, " "); is != text {
			t.Errorf("%s is %q, want %q", node, is, text)
		}
	}
}
