package rollout_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/nodes"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

// fleetOf is a view of n members at v1; change may say more of each.
func fleetOf(n int, change func(i int, m *rollout.Member)) rollout.View {
	var v rollout.View
	for i := range n {
		m := rollout.Member{Node: "n" + strconv.Itoa(i+1), Roles: []string{"worker"}, Up: true, Version: "v1"}
		if change != nil {
			change(i, &m)
		}
		v.Members = append(v.Members, m)
	}
	return v
}

func arrive(m *rollout.Member) { m.Version, m.Arrived = "v2", noon }

func fail(m *rollout.Member) {
	m.Config = nodes.State{State: nodes.Failed, Version: "v2", Since: noon, Detail: "task puppet: exit 4: broken\nit is\nbroken\n"}
}

// started is a rollout of v2 that began at noon.
func started(t *testing.T, p rollout.Policy) rollout.Document {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return rollout.Document{
		Version: "v2", Previous: "v1", Policy: p.Complete(), Started: noon, Since: noon,
		Phase: rollout.Waiting, Rule: rollout.Rule{Full: true},
	}
}

// admitted are the members that the rule admits.
func admitted(d rollout.Document, v rollout.View) []string {
	var all []string
	for _, m := range v.Members {
		if d.Rule.Admits(d.Policy.KeyOf(d.Version, m.Node, m.Roles, m.Zone)) {
			all = append(all, m.Node)
		}
	}
	return all
}

// change sets named members of a view.
func change(v rollout.View, names []string, set func(*rollout.Member)) rollout.View {
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		if slices.Contains(names, v.Members[i].Node) {
			set(&v.Members[i])
		}
	}
	return v
}

// TestCanaryAndBatches: one step after the other, each of the size that was
// asked for.
func TestCanaryAndBatches(t *testing.T) {
	t.Parallel()
	v := fleetOf(20, nil)
	d := started(t, rollout.Policy{Canary: 2, Batches: amounts(t, "5,50%,100%"), MaxParallel: rollout.Amount{N: 3}})
	steps := []struct {
		state string
		n     int
	}{{"canary", 2}, {"batch 1 of 3", 5}, {"batch 2 of 3", 10}, {"batch 3 of 3", 20}}
	for i, step := range steps {
		next, limit, decisions := rollout.Plan(d, v, noon)
		now := admitted(next, v)
		if next.StateText() != step.state || len(now) != step.n || limit != 3 || len(decisions) != 1 || decisions[0].Kind != rollout.DecideAdmit {
			t.Fatalf("step %d: %s admits %v, %d slots, %v", i, next.StateText(), now, limit, decisions)
		}
		// while they are under way nothing else happens
		held := change(v, now, func(m *rollout.Member) { m.Holds, m.HeldSince = true, noon })
		if again, _, _ := rollout.Plan(next, held, noon); !slices.Equal(admitted(again, v), now) {
			t.Fatalf("step %d: while they work %s admits %v", i, again.StateText(), admitted(again, v))
		}
		v = change(v, now, arrive)
		if next.Phase == rollout.Canary {
			waiting, _, decisions := rollout.Plan(next, v, noon)
			if got := rollout.Describe(waiting, v, noon).Waits; len(decisions) > 0 || !slices.Equal(got, []string{"'jorc update promote'"}) {
				t.Fatalf("a canary without min healthy waits for %v: %v", got, decisions)
			}
			next.Promoted = true
		}
		d = next
	}
	end, limit, decisions := rollout.Plan(d, v, noon)
	if end.Phase != rollout.Done || !end.Rule.All || end.Finished.IsZero() || end.Counts.Done != 20 || limit != 3 || decisions[0].Kind != rollout.DecideDone {
		t.Errorf("the end is %+v, %d, %v", end, limit, decisions)
	}
}

// TestPlan: what each policy makes of a view.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		policy rollout.Policy
		doc    func(*rollout.Document)
		view   rollout.View
		at     time.Duration // after noon
		state  string
		says   string // in the only decision
		limit  int
		admits int
	}{
		{
			name: "everybody", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 10, Percent: true}}, view: fleetOf(25, nil),
			state: "batch 1 of 1", limit: 2, admits: 25,
		},
		{
			name: "plain", view: fleetOf(3, nil), doc: func(d *rollout.Document) { d.Rule = rollout.Rule{All: true} },
			state: "batch 1 of 1", limit: slots.Keep, admits: 3,
		},
		{
			name: "plain, all there", view: fleetOf(3, func(_ int, m *rollout.Member) { arrive(m) }), doc: func(d *rollout.Document) { d.Rule = rollout.Rule{All: true} },
			state: "done", says: "3 of 3 members run v2", limit: slots.Keep, admits: 3,
		},
		{
			name: "those who are out take slots away", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 3}},
			view:  fleetOf(10, func(i int, m *rollout.Member) { m.Up, m.Sick = i != 0, i == 1 }),
			state: "batch 1 of 1", limit: 1, admits: 10,
		},
		{
			name: "too many are out", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 2}}, doc: func(d *rollout.Document) { d.Rule.Full = false },
			view:  fleetOf(10, func(i int, m *rollout.Member) { m.Sick = i < 4 }),
			state: "batch 1 of 1", limit: 2, admits: 10,
		},
		{
			name: "the canary is dead: the next one takes its place", policy: rollout.Policy{Canary: 1},
			view: change(fleetOf(8, nil), first(t, 8, 1), func(m *rollout.Member) { m.Up = false }), state: "canary", limit: 1, admits: 2,
		},
		{
			name: "a canary that was healthy long enough", policy: rollout.Policy{Canary: 2, MinHealthy: rollout.Duration(time.Minute)},
			view: change(fleetOf(8, nil), first(t, 8, 2), arrive), doc: func(d *rollout.Document) { d.Phase = rollout.Canary },
			state: "batch 1 of 1", limit: 2, admits: 8,
		},
		{
			name: "a canary that failed within the budget", policy: rollout.Policy{Canary: 2, MaxFailures: 1, MinHealthy: rollout.Duration(time.Minute)},
			view:  change(change(fleetOf(8, nil), first(t, 8, 2), arrive), first(t, 8, 1), fail),
			state: "canary", limit: 2,
		},
		{
			name: "one failed", policy: rollout.Policy{}, doc: func(d *rollout.Document) { d.Policy.MaxParallel = rollout.Amount{N: 1} },
			view: change(fleetOf(8, nil), []string{"n3"}, fail), state: "paused in phase waiting",
			says: "1 failed, and the policy allows 0: n3: config failed: task puppet: exit 4: broken", limit: 1,
		},
		{
			name: "it failed before", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}},
			view:  change(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { fail(m); m.Config.Since = noon.Add(-time.Minute) }),
			state: "batch 1 of 1", limit: 1, admits: 8,
		},
		{
			name: "another version failed", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}},
			view:  change(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { fail(m); m.Config.Version = "v1" }),
			state: "batch 1 of 1", limit: 1, admits: 8,
		},
		{
			name: "validation failed", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}},
			view:  change(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { fail(m); m.Validation, m.Config = m.Config, nodes.State{} }),
			state: "paused in phase waiting", says: "validation failed", limit: 1,
		},
		{
			name: "it died under way", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, at: 6 * time.Minute,
			view:  change(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { m.Up, m.Holds, m.DownSince = false, true, noon }),
			state: "paused in phase waiting", says: "n3: it holds a slot and is down since 2026", limit: 1,
		},
		{
			name: "it reboots", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, at: 4 * time.Minute,
			view:  change(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { m.Up, m.Holds, m.DownSince = false, true, noon }),
			state: "waiting", limit: 1,
		},
		{
			name: "too slow", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}, NodeDeadline: rollout.Duration(time.Minute)}, at: 2 * time.Minute,
			view:  change(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { m.Holds, m.HeldSince = true, noon }),
			state: "paused in phase waiting", says: "longer than 1m0s", limit: 1,
		},
		{
			name: "rolled back", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}, OnFailure: "rollback", Canary: 1},
			view: change(change(fleetOf(8, nil), []string{"n3"}, fail), []string{"n3", "n4"}, arrive), state: "rolling back",
			says: "v2 is rolled back to v1", limit: 1, admits: 8,
		},
		{
			name: "nothing to roll back to", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}, OnFailure: "rollback"},
			doc: func(d *rollout.Document) { d.Previous = "" }, view: change(fleetOf(8, nil), []string{"n3"}, fail),
			state: "paused in phase waiting", says: "no version is known", limit: 1,
		},
		{
			name: "no progress", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}, ProgressDeadline: rollout.Duration(time.Minute)}, at: 2 * time.Minute,
			doc: func(d *rollout.Document) {
				d.Phase, d.Batch, d.Rule = rollout.Batch, 1, rollout.Rule{To: &rollout.Key{Hash: "~"}}
			},
			view: change(fleetOf(3, nil), []string{"n2"}, func(m *rollout.Member) { m.Hold = "held by ann" }), state: "paused in phase batch 1 of 1",
			says: "no member arrived for longer than 1m0s; it waits for n2, which is held: held by ann; n", limit: 1, admits: 3,
		},
		{name: "nobody is there", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, view: rollout.View{}, state: "waiting", limit: 1},
		{
			name: "only managers and strangers", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}, Order: []rollout.Role{{Name: "old", Kept: true}}},
			view:  fleetOf(3, func(i int, m *rollout.Member) { m.Roles, m.Outside = [][]string{{"manager"}, {"old"}, nil}[i], i == 2 }),
			state: "waiting", limit: 1,
		},
		{
			name: "all are down", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, view: fleetOf(3, func(_ int, m *rollout.Member) { m.Up = false }),
			state: "waiting", limit: 1,
		},
		{
			name: "one is dead, the others are there", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 2}},
			view:  fleetOf(6, func(i int, m *rollout.Member) { arrive(m); m.Up = i > 0; m.Version = []string{"v1", "v2"}[min(i, 1)] }),
			state: "done", says: "5 of 6 members", limit: 1, admits: 6,
		},
		{
			name: "damaged policy", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, doc: func(d *rollout.Document) { d.Policy.Canary = -3 },
			view: fleetOf(2, nil), state: "paused in phase waiting", says: "trigger again", limit: 1,
		},
		{
			name: "damaged phase", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, doc: func(d *rollout.Document) { d.Phase, d.Batch = "?", -7 },
			view: fleetOf(2, nil), state: "batch 1 of 1", limit: 1, admits: 2,
		},
		{
			name: "a batch that there is not", policy: rollout.Policy{MaxParallel: rollout.Amount{N: 1}}, doc: func(d *rollout.Document) { d.Phase, d.Batch = rollout.Batch, 99 },
			view: fleetOf(2, func(_ int, m *rollout.Member) { arrive(m) }), state: "done", says: "2 of 2", limit: 1, admits: 2,
		},
	} {
		d := started(t, test.policy)
		if test.doc != nil {
			test.doc(&d)
		}
		now := noon.Add(test.at)
		next, limit, decisions := rollout.Plan(d, test.view, now)
		if next.StateText() != test.state || limit != test.limit || len(admitted(next, test.view)) != test.admits {
			t.Errorf("%s: %s, %d slots, admits %v; want %s, %d, %d members", test.name, next.StateText(), limit, admitted(next, test.view), test.state, test.limit, test.admits)
		}
		if test.says != "" && (len(decisions) != 1 || !strings.Contains(decisions[0].Text+decisions[0].Reason, test.says)) {
			t.Errorf("%s: %+v, want %q", test.name, decisions, test.says)
		}
		if again, _, more := rollout.Plan(next, test.view, now); len(more) > 0 || again.StateText() != next.StateText() {
			t.Errorf("%s: planned again: %v", test.name, more)
		}
	}
}

// first are the first of members in the order of a rollout of v2 without roles.
func first(t *testing.T, members, n int) []string {
	t.Helper()
	v := fleetOf(members, nil)
	slices.SortFunc(v.Members, func(a, b rollout.Member) int {
		return rollout.Policy{}.KeyOf("v2", a.Node, nil, "").Compare(rollout.Policy{}.KeyOf("v2", b.Node, nil, ""))
	})
	var all []string
	for _, m := range v.Members[:n] {
		all = append(all, m.Node)
	}
	return all
}

// TestOrder: roles one after the other, each with a limit of its own, and zones.
func TestOrder(t *testing.T) {
	t.Parallel()
	order, err := rollout.ParseOrder("db=1,web")
	if err != nil {
		t.Fatal(err)
	}
	v := fleetOf(12, func(i int, m *rollout.Member) {
		m.Roles = []string{[]string{"db", "web", "cache"}[i%3], "worker"}
		m.Zone = []string{"b", "a"}[i/6]
	})
	d := started(t, rollout.Policy{Order: order, ZoneByZone: true, MaxParallel: rollout.Amount{N: 4}})
	for i, want := range []struct {
		members string
		limit   int
	}{{"n7 n10", 1}, {"n1 n4", 1}, {"n8 n11", 4}, {"n2 n5", 4}, {"n9 n12", 4}, {"n3 n6", 4}} {
		next, limit, _ := rollout.Plan(d, v, noon)
		if got := strings.Join(admitted(next, v), " "); got != want.members || limit != want.limit {
			t.Fatalf("step %d: %s with %d slots, want %s with %d", i, got, limit, want.members, want.limit)
		}
		v = change(v, admitted(next, v), arrive)
		d = next
	}
	// somebody joins a zone that is done: it comes when the present one is done, too
	late := rollout.Member{Node: "n13", Roles: []string{"db"}, Zone: "a", Up: true}
	d.Rule = rollout.Rule{From: &rollout.Key{Place: 1, Zone: "a"}, To: &rollout.Key{Place: 1, Zone: "a", Hash: "~"}}
	v.Members = append(v.Members, late)
	busy := change(v, []string{"n8"}, func(m *rollout.Member) { m.Version, m.Holds = "v1", true })
	if next, _, _ := rollout.Plan(d, busy, noon); slices.Contains(admitted(next, v), "n13") {
		t.Error("n13 is admitted while another zone is under way")
	}
	if next, _, _ := rollout.Plan(d, v, noon); !slices.Equal(admitted(next, v), []string{"n7", "n10", "n1", "n4", "n13"}) && !slices.Contains(admitted(next, v), "n13") {
		t.Errorf("n13 is not admitted: %v", admitted(next, v))
	}
}
