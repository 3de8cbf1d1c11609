package view_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/view"
)

func node() view.Node {
	return view.Node{
		Address: "10.0.0.1", Datacenter: "dc1", Zone: "r1", Roles: []string{"db", "worker"}, Params: "p", Meta: "m", Needs: "n",
		Life: view.Up, Agent: "up", Health: "passing", Version: "v1",
		States:   map[string]view.State{"config": {State: "success", Version: "v1"}},
		Services: map[string]view.Tally{"web": {Passing: 1}},
	}
}

func small() view.View {
	return view.View{
		Cluster: view.Cluster{Exists: true, Profile: "x", Desired: "v1", Leaders: []string{"a"}, LeaderCount: 1},
		Nodes:   map[string]view.Node{"a": node(), "b": node()},
	}
}

func kinds(events []view.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return all
}

func TestDiff(t *testing.T) {
	t.Parallel()
	onNode := func(change func(n *view.Node)) func(*view.View) {
		return func(v *view.View) {
			n := v.Nodes["b"]
			change(&n)
			v.Nodes["b"] = n
		}
	}
	for _, test := range []struct {
		name   string
		change func(v *view.View)
		kind   string
		text   string
	}{
		{"deleted", func(v *view.View) { v.Cluster.Exists = false }, view.ClusterDeleted, "the cluster's profile is gone"},
		{"profile", func(v *view.View) { v.Cluster.Profile = "y" }, view.ClusterChanged, "the profile was changed"},
		{"pause", func(v *view.View) { v.Cluster.Paused = "why" }, view.ClusterPaused, "the cluster is paused: why"},
		{"observe", func(v *view.View) { v.Cluster.ObserveOnly = "why" }, view.ClusterChanged, "the orchestrator only observes: why"},
		{"holds", func(v *view.View) { v.Cluster.Holds = []string{"role db"} }, view.ClusterChanged, "holds were changed"},
		{"count", func(v *view.View) { v.Cluster.LeaderCount = 3 }, view.ClusterChanged, "3 are to lead"},
		{"desired", func(v *view.View) { v.Cluster.Desired = "v2" }, view.DesiredVersionChanged, "the desired version is v2"},
		{"leaders", func(v *view.View) { v.Cluster.Leaders = nil }, view.LeadersChanged, "leaders: none"},
		{"managers", func(v *view.View) { v.Cluster.Managers = []string{"m"} }, view.ManagersChanged, "managers: m"},
		{"trouble", func(v *view.View) { v.Cluster.Trouble = map[string]string{"leaders": "bad"} }, view.DocumentDamaged, "leaders cannot be read: bad; what was known before is kept"},
		{"join", func(v *view.View) { v.Nodes["c"] = view.Node{Zone: "r2"} }, view.MemberJoined, "c is a member: roles none, zone r2"},
		{"zone", onNode(func(n *view.Node) { n.Zone = "r2" }), view.MemberChanged, "b: other zone"},
		{"suspect", onNode(func(n *view.Node) { n.Life = view.Suspect }), view.NodeSuspect, "b is suspect: gossip does not hear it, but the orchestrator reaches it"},
		{"down", onNode(func(n *view.Node) { n.Life = view.Down }), view.NodeDown, "b is down: neither gossip nor the orchestrator reaches it"},
		{"gone", onNode(func(n *view.Node) { n.Life = "" }), view.NodeGone, "b is not in the catalog any more"},
		{"agent", onNode(func(n *view.Node) { n.Agent = "down" }), view.AgentDown, "b: its jorc agent is down"},
		{"health", onNode(func(n *view.Node) { n.Health = "critical" }), view.HealthChanged, "b is critical"},
		{"version", onNode(func(n *view.Node) { n.Version = "v2" }), view.VersionChanged, "b runs v2"},
		{"suspect", onNode(func(n *view.Node) {
			n.States = map[string]view.State{"config": {State: "success", Version: "v1", Suspect: "drifted: /etc/a"}}
		}), view.StateChanged, "b: config is success at v1, suspect: drifted: /etc/a"},
		{"state", onNode(func(n *view.Node) { n.States = map[string]view.State{"config": {State: "failed", Version: "v2"}} }), view.StateChanged, "b: config is failed at v2"},
		{"service", onNode(func(n *view.Node) { n.Services = map[string]view.Tally{"web": {Critical: 1}} }), view.ServiceChanged, "web: 1 of 2 functional, 1 critical (on b)"},
		{"new service", onNode(func(n *view.Node) { n.Services = map[string]view.Tally{"web": {Passing: 1}, "db": {Warning: 1}} }), view.ServiceUp, "db: 1 of 1 functional, 1 warning (on b)"},
		{"damage", onNode(func(n *view.Node) { n.Trouble = "bad" }), view.DocumentDamaged, "what b reports cannot be read: bad; what was known before is kept"},
	} {
		next := small()
		test.change(&next)
		got := view.Diff(small(), next)
		if len(got) != 1 || got[0].Kind != test.kind || got[0].Text != test.text {
			t.Errorf("%s: got %+v; want one %s %q", test.name, got, test.kind, test.text)
		}
		if back := view.Diff(next, small()); len(back) == 0 {
			t.Errorf("%s: no event when it is undone", test.name)
		}
	}
	down := small()
	delete(down.Nodes, "a")
	delete(down.Nodes, "b")
	if got, want := kinds(view.Diff(small(), down)), []string{view.MemberLeft, view.MemberLeft, view.ServiceDown}; !slices.Equal(got, want) {
		t.Errorf("all left: %v; want %v", got, want)
	}
	if got := kinds(view.Diff(view.View{}, small())); !slices.Equal(got[:2], []string{view.ClusterCreated, view.ClusterChanged}) {
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

// TestEveryDifferenceIsAnEvent: a view is no different from itself, and
// whatever field changes there is an event, except for the times since when.
func TestEveryDifferenceIsAnEvent(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	v := small()
	for i := range 20_000 {
		next := view.View{Cluster: v.Cluster, Nodes: map[string]view.Node{}}
		for name, n := range v.Nodes {
			next.Nodes[name] = n
		}
		if got := view.Diff(v, next); len(got) > 0 {
			t.Fatalf("%d: a view differs from itself: %+v", i, got)
		}
		mutate(r, reflect.ValueOf(&next).Elem())
		if got := view.Diff(v, next); len(got) == 0 && !reflect.DeepEqual(v, next) {
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
	old.Since(view.View{}, begin)
	n := next.Nodes["b"]
	n.Health = "critical"
	next.Nodes["b"] = n
	next.Since(old, begin.Add(time.Minute))
	whole := begin.Truncate(time.Second)
	if a, b := next.Nodes["a"], next.Nodes["b"]; a.HealthSince != whole || b.HealthSince != whole.Add(time.Minute) || b.LifeSince != whole {
		t.Errorf("a %v, b %v and %v", a.HealthSince, b.HealthSince, b.LifeSince)
	}
	if got := view.Diff(old, next); len(got) != 1 {
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
	want := view.Aggregate{
		Nodes: 3, Life: map[string]int{"up": 3}, Agents: map[string]int{"up": 3}, Health: map[string]int{"passing": 2, "critical": 1},
		Versions: map[string]int{"v1": 2, view.None: 1}, Roles: map[string]int{"db": 3, "worker": 3}, Zones: map[string]int{"r1": 2, "r2": 1}, Trouble: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
