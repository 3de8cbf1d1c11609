package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/orchestrator"
)

func node() orchestrator.NodeView {
	return orchestrator.NodeView{
		Address: "10.0.0.1", Datacenter: "dc1", Zone: "r1", Roles: []string{"db", "worker"}, Params: "p", Meta: "m", Needs: "n",
		Life: cluster.LivenessUp, Agent: "up", Health: "passing", Version: "v1",
		States:   map[string]orchestrator.StateView{"config": {State: "success", Version: "v1"}},
		Services: map[string]cluster.Tally{"web": {Passing: 1}},
	}
}

func small() orchestrator.View {
	return orchestrator.View{
		Cluster: orchestrator.ClusterView{Exists: true, Profile: "x", Desired: "v1", Leaders: []string{"a"}, LeaderCount: 1},
		Nodes:   map[string]orchestrator.NodeView{"a": node(), "b": node()},
	}
}

func kinds(events []orchestrator.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return all
}

func TestDiff(t *testing.T) {
	t.Parallel()
	onNode := func(change func(n *orchestrator.NodeView)) func(*orchestrator.View) {
		return func(v *orchestrator.View) {
			n := v.Nodes["b"]
			change(&n)
			v.Nodes["b"] = n
		}
	}
	for _, test := range []struct {
		name   string
		change func(v *orchestrator.View)
		kind   string
		text   string
	}{
		{"deleted", func(v *orchestrator.View) { v.Cluster.Exists = false }, event.ClusterDeleted, "the cluster's profile is gone"},
		{"profile", func(v *orchestrator.View) { v.Cluster.Profile = "y" }, event.ClusterChanged, "the profile was changed"},
		{"pause", func(v *orchestrator.View) { v.Cluster.Paused = "why" }, event.ClusterPaused, "the cluster is paused: why"},
		{"observe", func(v *orchestrator.View) { v.Cluster.ObserveOnly = "why" }, event.ClusterChanged, "the orchestrator only observes: why"},
		{"holds", func(v *orchestrator.View) { v.Cluster.Holds = []string{"role db"} }, event.ClusterChanged, "holds were changed"},
		{"count", func(v *orchestrator.View) { v.Cluster.LeaderCount = 3 }, event.ClusterChanged, "3 members are to lead"},
		{"desired", func(v *orchestrator.View) { v.Cluster.Desired = "v2" }, event.DesiredVersionChanged, "the desired version is v2"},
		{"leaders", func(v *orchestrator.View) { v.Cluster.Leaders = nil }, event.LeadersChanged, "leaders: none"},
		{"managers", func(v *orchestrator.View) { v.Cluster.Managers = []string{"m"} }, event.ManagersChanged, "managers: m"},
		{"trouble", func(v *orchestrator.View) { v.Cluster.Trouble = map[string]string{"leaders": "bad"} }, event.DocumentDamaged, "leaders cannot be read: bad; what was known before is kept"},
		{"join", func(v *orchestrator.View) { v.Nodes["c"] = orchestrator.NodeView{Zone: "r2"} }, event.MemberJoined, "c is a member: roles none, zone r2"},
		{"zone", onNode(func(n *orchestrator.NodeView) { n.Zone = "r2" }), event.MemberChanged, "b: other zone"},
		{"suspect", onNode(func(n *orchestrator.NodeView) { n.Life = cluster.LivenessSuspect }), event.NodeSuspect, "b is suspect: gossip does not hear it, but the orchestrator reaches it"},
		{"down", onNode(func(n *orchestrator.NodeView) { n.Life = cluster.LivenessDown }), event.NodeDown, "b is down: neither gossip nor the orchestrator reaches it"},
		{"gone", onNode(func(n *orchestrator.NodeView) { n.Life = "" }), event.NodeGone, "b is no longer in the catalog"},
		{"agent", onNode(func(n *orchestrator.NodeView) { n.Agent = "down" }), event.AgentDown, "b: its jorc agent is down"},
		{"health", onNode(func(n *orchestrator.NodeView) { n.Health = "critical" }), event.HealthChanged, "b is critical"},
		{"version", onNode(func(n *orchestrator.NodeView) { n.Version = "v2" }), event.VersionChanged, "b runs v2"},
		{"suspect", onNode(func(n *orchestrator.NodeView) {
			n.States = map[string]orchestrator.StateView{"config": {State: "success", Version: "v1", Suspect: "drifted: /etc/a"}}
		}), event.StateChanged, "b: config succeeded at v1, suspect: drifted: /etc/a"},
		{"hold file", onNode(func(n *orchestrator.NodeView) { n.HoldFile = "held by the file /x: disk" }), event.MemberChanged, "b is held by the file /x: disk"},
		{"state", onNode(func(n *orchestrator.NodeView) {
			n.States = map[string]orchestrator.StateView{"config": {State: "failed", Version: "v2"}}
		}), event.StateChanged, "b: config failed at v2"},
		{"service", onNode(func(n *orchestrator.NodeView) { n.Services = map[string]cluster.Tally{"web": {Critical: 1}} }), event.ServiceChanged, "web: 1 of 2 functional, 1 critical (on b)"},
		{"new service", onNode(func(n *orchestrator.NodeView) {
			n.Services = map[string]cluster.Tally{"web": {Passing: 1}, "db": {Warning: 1}}
		}), event.ServiceUp, "db: 1 of 1 functional, 1 warning (on b)"},
		{"damage", onNode(func(n *orchestrator.NodeView) { n.Trouble = "bad" }), event.DocumentDamaged, "what b reports cannot be read: bad; what was known before is kept"},
	} {
		next := small()
		test.change(&next)
		got := orchestrator.Difference(small(), next)
		if len(got) != 1 || got[0].Kind != test.kind || got[0].Text != test.text {
			t.Errorf("%s: got %+v; want one %s %q", test.name, got, test.kind, test.text)
		}
		if back := orchestrator.Difference(next, small()); len(back) == 0 {
			t.Errorf("%s: no event when it is undone", test.name)
		}
	}
	down := small()
	delete(down.Nodes, "a")
	delete(down.Nodes, "b")
	if got, want := kinds(orchestrator.Difference(small(), down)), []string{event.MemberLeft, event.MemberLeft, event.ServiceDown}; !slices.Equal(got, want) {
		t.Errorf("all left: %v; want %v", got, want)
	}
	if got := kinds(orchestrator.Difference(orchestrator.View{}, small())); !slices.Equal(got[:2], []string{event.ClusterCreated, event.ClusterChanged}) {
		t.Errorf("created: %v", got)
	}
}

// mutate changes one field, at any depth, of the value at v.
func mutate(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		mutate(r, v.Field(r.IntN(v.NumField())))
	case reflect.String:
		v.SetString(fmt.Sprintf("%s%d", v.String(), r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int:
		v.SetInt(v.Int() + 1 + int64(r.IntN(3)))
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
		mutate(r, v.Index(v.Len()-1))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			m.SetMapIndex(k, v.MapIndex(k))
		}
		k := reflect.ValueOf(fmt.Sprintf("k%d", r.IntN(3)))
		e := reflect.New(v.Type().Elem()).Elem()
		if old := m.MapIndex(k); old.IsValid() {
			e.Set(old)
		}
		mutate(r, e)
		m.SetMapIndex(k, e)
		v.Set(m)
	}
}

// TestEveryDifferenceIsAnEvent: a view does not differ from itself, and
// whatever field changes there is an event, except for the times since when.
func TestEveryDifferenceIsAnEvent(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	v := small()
	for i := range 20_000 {
		next := orchestrator.View{Cluster: v.Cluster, Nodes: map[string]orchestrator.NodeView{}}
		for name, n := range v.Nodes {
			next.Nodes[name] = n
		}
		if got := orchestrator.Difference(v, next); len(got) > 0 {
			t.Fatalf("%d: a view differs from itself: %+v", i, got)
		}
		mutate(r, reflect.ValueOf(&next).Elem())
		if got := orchestrator.Difference(v, next); len(got) == 0 && !reflect.DeepEqual(v, next) {
			t.Fatalf("%d: no event for the difference of\n%+v\n%+v", i, v, next)
		}
		v = next
		if i%50 == 0 {
			v = small()
		}
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 5, time.UTC)
	old, next := small(), small()
	old.Since(orchestrator.View{}, begin)
	n := next.Nodes["b"]
	n.Health = "critical"
	next.Nodes["b"] = n
	next.Since(old, begin.Add(time.Minute))
	whole := begin.Truncate(time.Second)
	if a, b := next.Nodes["a"], next.Nodes["b"]; a.HealthSince != whole || b.HealthSince != whole.Add(time.Minute) || b.LifeSince != whole {
		t.Errorf("a %v, b %v and %v", a.HealthSince, b.HealthSince, b.LifeSince)
	}
	if got := orchestrator.Difference(old, next); len(got) != 1 {
		t.Errorf("got %v; want the one health_changed", got)
	}
}

func TestAggregate(t *testing.T) {
	t.Parallel()
	v := small()
	n := node()
	n.Health, n.Version, n.Zone, n.Trouble = "critical", "", "r2", "bad"
	v.Nodes["c"] = n
	got := v.Aggregate()
	want := orchestrator.Aggregate{
		Nodes: 3, Life: map[string]int{"up": 3}, Agents: map[string]int{"up": 3}, Health: map[string]int{"passing": 2, "critical": 1},
		Versions: map[string]int{"v1": 2, orchestrator.AggregateNone: 1}, Roles: map[string]int{"db": 3, "worker": 3}, Zones: map[string]int{"r1": 2, "r2": 1}, Trouble: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
