package rollout_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// TestOutWithoutSlot: who is out of service without a slot is named with the
// reason; one whose slot was taken away by hand does not count any more.
func TestOutWithoutSlot(t *testing.T) {
	t.Parallel()
	maintenance := func(notes string) []consul.CheckState {
		return []consul.CheckState{{CheckID: "_node_maintenance", Status: consul.HealthCritical, Notes: notes}}
	}
	o := cluster.Observation{Inventory: []consul.NodeInfo{
		{Node: "drained", Checks: maintenance("jorc: update to v2")},
		{Node: "holds", Checks: maintenance("jorc: update to v2")},
		{Node: "foreign", Checks: maintenance("ann: disks")},
		{Node: "mixed", Checks: append(maintenance("jorc: update to v2"),
			consul.CheckState{CheckID: "_service_maintenance:web", Status: consul.HealthCritical, Notes: "ann: web"})},
		{Node: "well", Checks: []consul.CheckState{{CheckID: "_service_maintenance:web", Notes: "jorc: stopped"}}},
	}}
	for _, n := range []string{"down", "drained", "foreign", "holds", "mixed", "well"} {
		m := cluster.Member{Node: n, Roles: []string{"worker"}, Agent: cluster.AgentUp}
		if n == "down" {
			m.Agent = cluster.AgentDown
		}
		o.Members = append(o.Members, m)
	}
	group := slots.Group{Max: 2, Holders: map[string]slots.Holding{"holds/" + rollout.ClaimID: {Since: noon}}}
	v, err := rollout.ViewOf(o, nil, group)
	if err != nil {
		t.Fatal(err)
	}
	d := started(t, rollout.Policy{MaxParallel: rollout.Amount{N: 5}})
	got := rollout.Describe(d, v, noon.Add(time.Minute))
	want := []rollout.Out{
		{Reason: "a check is critical, or somebody put it into maintenance", Nodes: []string{"foreign", "mixed"}, Count: 2},
		{Reason: "its host or its agent is down", Nodes: []string{"down"}, Count: 1},
		{Reason: "its slot was taken away; it is in maintenance until it has converged, and does not count", Nodes: []string{"drained"}, Count: 1},
	}
	if !reflect.DeepEqual(got.Out, want) {
		t.Errorf("got %+v, want %+v", got.Out, want)
	}
	if got.Limit != 2 { // five less those that are out and count
		t.Errorf("limit %d, want 2", got.Limit)
	}
}
