package rollout_test

import (
	"cmp"
	"reflect"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

// TestOutWithoutGrant: a host that is out of service without a grant is named
// with the reason; one that an operator gave up on no longer counts.
func TestOutWithoutGrant(t *testing.T) {
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
	for node, id := range map[string]string{"holds": "1", "drained": "2"} {
		state.Hosts[node].Report = state.Hosts[node].Report.WithAnswer(cluster.Answer{Change: cluster.VersionChange, ID: id, Tag: "v2", State: cluster.GrantAccepted, Since: noon})
	}
	state.Hosts["drained"].Grants = kv.Entry[string]{Exists: true, Value: `{"format":1,"grants":[{"change":"version","id":"2","state":"given up","since":"2026-11-21T12:00:00Z","by":"ann"}]}`}
	v, err := rollout.StateOf(&state, rollout.Stored{})
	if err != nil {
		t.Fatal(err)
	}
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 5}})
	got := rollout.Describe(d, v, noon.Add(time.Minute))
	want := []rollout.Out{
		{Reason: "it is in maintenance", Nodes: []string{"foreign"}, Count: 1},
		{Reason: "its host or its agent is down", Nodes: []string{"down"}, Count: 1},
	}
	if !reflect.DeepEqual(got.Out, want) {
		t.Errorf("got %+v, want %+v", got.Out, want)
	}
	grantsWant := []rollout.Granted{
		{Node: "drained", Version: "v2", State: string(pace.GivenUp), Since: noon, Reason: "ann"}, {Node: "holds", Version: "v2", State: cluster.GrantAccepted, Since: noon},
	}
	if !reflect.DeepEqual(got.Grants, grantsWant) {
		t.Errorf("got %+v, want %+v", got.Grants, grantsWant)
	}
	if offers := planOffers(d, v); offers != 1 { // the one in service
		t.Errorf("%d offers, want 1", offers)
	}
}

// TestPreviousIsAnother: the version that a rollback returns to is not shown as the one
// before itself.
func TestPreviousIsAnother(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 1}})
	for _, previous := range []string{"v1", ""} {
		if got := rollout.Describe(d, rollout.State{}, noon).Previous; got != previous {
			t.Errorf("%s: previous is %q, want %q", d.Version, got, previous)
		}
		d.Version = d.Previous
	}
}

// planOffers is how many hosts a plan offers a grant.
func planOffers(d rollout.Document, v rollout.State) int {
	d.Phase, d.Batch = pace.Batch, 1
	plan, _ := planned(d, v, noon.Add(time.Minute))
	return len(plan.Offers)
}
