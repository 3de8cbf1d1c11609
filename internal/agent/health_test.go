package agent

import (
	"slices"
	"testing"

	"github.com/jorc/jorc/internal/consul"
)

// TestFailing: which critical checks keep a slot, and which make a host apply
// its static configuration again.
func TestFailing(t *testing.T) {
	t.Parallel()
	all := consul.HealthChecks{
		{CheckID: consul.GossipCheck, Name: "Serf Health Status", Status: consul.HealthCritical, Output: "Agent not live or unreachable"},
		{CheckID: "disk", Name: "disk", Status: consul.HealthCritical, Output: "full\nof logs"},
		{CheckID: "web:1", Name: "web", ServiceName: "web", Status: consul.HealthPassing},
		{CheckID: "web:2", Name: "slow", ServiceName: "web", Status: consul.HealthWarning},
		{CheckID: consul.NodeMaintenance, Name: "Node Maintenance Mode", Status: consul.HealthCritical, Notes: "jorc: update to v1"},
		{CheckID: "service:jorc", Name: "jorc agent", ServiceName: "jorc", Status: consul.HealthCritical},
	}
	disk := "host: disk is critical: full"
	if got, want := failing(all), []string{"host: Serf Health Status is critical: Agent not live or unreachable", disk}; !slices.Equal(got, want) {
		t.Errorf("failing: got %q, want %q", got, want)
	}
	if got, want := failing(fixable(all)), []string{disk}; !slices.Equal(got, want) {
		t.Errorf("fixable: got %q, want %q", got, want)
	}
	service := &consul.HealthCheck{CheckID: "_service_maintenance:web", ServiceName: "web", Status: consul.HealthCritical, Notes: "ann"}
	if healthOf(all).Drained || !healthOf(append(slices.Clone(all), service)).Drained {
		t.Error("maintenance that jorc did not begin drains a host, its own does not")
	}
	if all[0].CheckID != consul.GossipCheck {
		t.Error("the answer of Consul was changed")
	}
}
