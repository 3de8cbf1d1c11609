package rollout_test

import (
	"cmp"
	"reflect"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// TestOutWithoutSlot: who is out of service without a slot is named with the
// reason; one whose slot was taken away by hand does not count any more.
func TestOutWithoutSlot(t *testing.T) {
	t.Parallel()
	const own, foreign = cluster.MaintenanceOwn, cluster.MaintenanceForeign
	maintenance := map[string]cluster.Maintenance{"drained": own, "holds": own, "foreign": foreign}
	state := cluster.State{Hosts: map[string]*cluster.Host{}}
	for _, n := range []string{"down", "drained", "foreign", "holds", "well"} {
		s := cluster.Signals{
			Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Checks: "passing",
			Maintenance: cmp.Or(maintenance[n], cluster.MaintenanceNone),
		}
		if n == "down" {
			s.Agent = cluster.SignalFailing
		}
		state.Hosts[n] = &cluster.Host{Node: n, Member: true, Condition: cluster.Assess(s)}
	}
	group := slots.Group{Max: 2, Holders: map[string]slots.Holding{"holds/" + rollout.ClaimID: {Since: noon}}}
	v, err := rollout.ViewOf(&state, group)
	if err != nil {
		t.Fatal(err)
	}
	d := started(t, rollout.Policy{MaxParallel: rollout.Amount{N: 5}})
	got := rollout.Describe(d, v, noon.Add(time.Minute))
	want := []rollout.Out{
		{Reason: "a check is critical, or somebody put it into maintenance", Nodes: []string{"foreign"}, Count: 1},
		{Reason: "its host or its agent is down", Nodes: []string{"down"}, Count: 1},
		{Reason: "its slot was taken away; it is in maintenance until it has converged, and does not count", Nodes: []string{"drained"}, Count: 1},
	}
	if !reflect.DeepEqual(got.Out, want) {
		t.Errorf("got %+v, want %+v", got.Out, want)
	}
	if got.Limit != 3 { // five less those that are out and count
		t.Errorf("limit %d, want 3", got.Limit)
	}
}
