package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

func hold(m *rollout.Member) { m.Hold = "since noon by ann: disk" }

func free(m *rollout.Member) {
	m.Hold = ""
	set(m, true, false)
}

// advance plans, and lets all that are offered a grant arrive, until nothing moves.
func advance(d rollout.Document, v rollout.State, now time.Time) (rollout.Document, rollout.State, []pace.Decision) {
	var all []pace.Decision
	for range 50 {
		p, decisions := planned(d, v, now)
		d, all = p.Document, append(all, decisions...)
		if len(p.Offers) == 0 && len(decisions) == 0 {
			break
		}
		v = changed(v, offered(p), arrive)
	}
	return d, v, all
}

// arrived are the members at v2.
func arrived(v rollout.State) (all []string) {
	for _, m := range v.Members {
		if m.Version == "v2" {
			all = append(all, m.Node)
		}
	}
	return all
}

// inOrder are the members in the order in which v2 reaches them.
func inOrder(p pace.Policy, v rollout.State) []string {
	members := slices.Clone(v.Members)
	slices.SortFunc(members, func(a, b rollout.Member) int {
		return p.KeyOf("v2", a.Node, a.Roles, a.Zone).Compare(p.KeyOf("v2", b.Node, b.Roles, b.Zone))
	})
	var names []string
	for _, m := range members {
		names = append(names, m.Node)
	}
	return names
}

func waits(d rollout.Document, v rollout.State) string {
	return strings.Join(rollout.Describe(d, v, noon).Waits, "; ")
}

// TestHeldCanary: the next host in order takes the place of a canary that is held or drained.
func TestHeldCanary(t *testing.T) {
	t.Parallel()
	for name, aside := range map[string]func(*rollout.Member){"held": hold, "drained": drain, "held by its file": func(m *rollout.Member) { m.HoldFile = "touched" }} {
		policy := pace.Policy{Canary: 1, MaxParallel: pace.Amount{N: 2}}
		v := fleetOf(4, nil)
		order := inOrder(policy, v)
		p, _ := planned(started(t, policy), changed(v, order[:1], aside), noon)
		if got := offered(p); !slices.Equal(got, order[1:2]) {
			t.Errorf("%s: the canary is %v, want %s", name, got, order[1])
		}
	}
}

// TestSharesOfHeld: shares of batches and limits are of members that are not held.
func TestSharesOfHeld(t *testing.T) {
	t.Parallel()
	policy := pace.Policy{Batches: amounts(t, "50%,100%"), MaxParallel: pace.Amount{N: 50, Percent: true}}
	v := fleetOf(12, nil)
	v = changed(v, inOrder(policy, v)[1:5], hold)
	p, _ := planned(started(t, policy), v, noon)
	if got := offered(p); len(got) != 4 {
		t.Errorf("the first batch of 12 members, 4 of them held, is %v, want 4", got)
	}
	if got := rollout.Describe(p.Document, v, noon); got.Limit != 4 || got.Now.Held != 4 || len(got.Held) != 1 || got.Held[0].Count != 4 {
		t.Errorf("at most %d may be out of service, %d are held: %+v", got.Limit, got.Now.Held, got.Held)
	}
}

// TestEndsWithHeld: a rollout ends beside held and drained hosts and says so; they follow
// when that ends.
func TestEndsWithHeld(t *testing.T) {
	t.Parallel()
	policy := pace.Policy{Canary: 1, Batches: amounts(t, "3,100%"), MaxParallel: pace.Amount{N: 4}}
	v := fleetOf(12, nil)
	order := inOrder(policy, v)
	v = changed(changed(v, order[1:2], hold), order[4:5], drain)
	d := started(t, policy)
	d.Promoted = true
	d, v, decisions := advance(d, v, noon)
	last := decisions[len(decisions)-1]
	if d.Phase != pace.Done || len(arrived(v)) != 10 || last.Kind != event.ChangeDone || last.Text != "10 of 12 members run v2, 0 failed" || last.Reason != "2 are held or drained and follow when that ends" {
		t.Fatalf("the rollout is %s with %v: %+v", d.StateText(), arrived(v), last)
	}
	for _, h := range rollout.Progress(d, v, noon) {
		if slices.Contains([]string{order[1], order[4]}, h.Node) != (h.State == pace.Held) {
			t.Errorf("%s is %q: %s", h.Node, h.State, h.Detail)
		}
	}
	for _, one := range []string{order[1], order[4]} {
		v = changed(v, []string{one}, free)
		p := rollout.Plan(d, v, noon)
		if got := offered(p); !slices.Equal(got, []string{one}) {
			t.Errorf("after its hold %s follows: offers %v", one, got)
		}
		v = changed(v, []string{one}, arrive)
	}
}

// TestRollbackBesideHeld: a rollback ends although a host of its first batch is held, and waits
// where only held hosts would go back.
func TestRollbackBesideHeld(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]pace.Policy{
		"by an operator": {Canary: 1, Batches: amounts(t, "3,100%"), MaxParallel: pace.Amount{N: 4}},
		"by the policy":  {MaxParallel: pace.Amount{N: 4}},
	} {
		v := fleetOf(12, nil)
		order := inOrder(policy, v)
		v = changed(v, order[1:2], hold)
		d := started(t, policy)
		d.Promoted, d.RollbackOf = true, &rollout.Rollback{Version: "v3", Reason: "broken"}
		if name == "by the policy" {
			d.Phase = pace.RollingBack
		}
		if d, v, _ := advance(d, v, noon); d.Phase != pace.Done || len(arrived(v)) != 11 {
			t.Errorf("%s: it is %s with %v", name, d.StateText(), arrived(v))
		}
	}
	back := started(t, pace.Policy{MaxParallel: pace.Amount{N: 4}})
	back.Phase = pace.RollingBack
	v := fleetOf(4, func(i int, m *rollout.Member) {
		if arrive(m); i == 0 {
			m.Version = "v1"
			hold(m)
		}
		m.Arrived = noon.Add(-time.Hour)
	})
	if d, _, _ := advance(back, v, noon); d.Phase != pace.RollingBack || !strings.Contains(waits(d, v), "a host of the next step that is not held; n1: it is held") {
		t.Errorf("only a held host is to go back: it is %s and waits for %s", d.StateText(), waits(d, v))
	}
}

// TestAllHeld: a step of which every host is held does not pass: the rollout waits, says so,
// and continues when a hold ends.
func TestAllHeld(t *testing.T) {
	t.Parallel()
	canaries := pace.Policy{Canary: 1, Batches: amounts(t, "50%,100%"), MaxParallel: pace.Amount{N: 5}}
	plain := pace.Policy{MaxParallel: pace.Amount{N: 5}}
	all := []string{"n1", "n2", "n3", "n4"}
	first := inOrder(canaries, fleetOf(4, nil))[0]
	db := func(s rollout.State) rollout.State {
		return changed(s, []string{"n2", "n3"}, func(m *rollout.Member) { m.Roles = []string{"db"} })
	}
	for _, test := range []struct {
		name   string
		policy pace.Policy
		state  rollout.State
		doc    func(*rollout.Document)
		state2 string // in which it waits
		names  string // that it waits for
	}{
		{"every member", canaries, changed(fleetOf(4, nil), all, hold), nil, "waiting", "n4: it is held"},
		{"every member, without steps", plain, changed(fleetOf(4, nil), all, hold), nil, "waiting", "n1: it is held"},
		{"every member, without a policy", pace.Policy{}, changed(fleetOf(4, nil), all, hold), func(d *rollout.Document) { d.Phase, d.Batch = pace.Batch, 1 }, "batch 1 of 1", "n1: it is held"},
		{"every member is drained", canaries, changed(fleetOf(4, nil), all, drain), nil, "waiting", "n1: it is in maintenance that jorc did not begin"},
		{
			"all after the canary", canaries, changed(changed(fleetOf(4, nil), all, hold), []string{first}, func(m *rollout.Member) { free(m); arrive(m) }),
			func(d *rollout.Document) { d.Phase, d.Steps = pace.Canary, 1 }, "canary", "it is held",
		},
		{
			"all of the last step, which had begun", plain, changed(fleetOf(4, nil), all, hold),
			func(d *rollout.Document) { d.Phase, d.Batch, d.Steps = pace.Batch, 1, 1 }, "batch 1 of 1", "n2: it is held",
		},
		{
			"the whole cluster, in the last step", plain, func() rollout.State {
				s := changed(changed(fleetOf(4, nil), all, hold), []string{first}, arrive)
				s.AllHeld = true
				return s
			}(), func(d *rollout.Document) { d.Phase, d.Batch, d.Steps = pace.Batch, 1, 1 }, "batch 1 of 1", "it is held",
		},
		{
			"the first role",
			pace.Policy{MaxParallel: pace.Amount{N: 5}, Order: []pace.Role{{Name: "db"}, {Name: "worker"}}},
			db(changed(fleetOf(4, nil), []string{"n2", "n3"}, hold)), nil, "waiting", "n2: it is held",
		},
		{
			"the last role",
			pace.Policy{MaxParallel: pace.Amount{N: 5}, Order: []pace.Role{{Name: "worker"}, {Name: "db"}}},
			db(changed(fleetOf(4, nil), []string{"n2", "n3"}, hold)), nil, "batch 1 of 1", "n3: it is held",
		},
	} {
		d := started(t, test.policy)
		d.Promoted = true
		if test.doc != nil {
			test.doc(&d)
		}
		d, v, decisions := advance(d, test.state, noon)
		if got := waits(d, v); d.StateText() != test.state2 || !strings.Contains(got, "a host of the next step that is not held") || !strings.Contains(got, test.names) {
			t.Errorf("%s: it is %s and waits for %s (%v)", test.name, d.StateText(), got, decisions)
		}
		v.AllHeld = false
		v = changed(v, all, free)
		if d.Policy.Plain() { // they begin by themselves
			v = changed(v, all, arrive)
		}
		if d, v, _ = advance(d, v, noon); d.Phase != pace.Done || len(arrived(v)) != 4 {
			t.Errorf("%s: after the hold it is %s with %v, and waits for %s", test.name, d.StateText(), arrived(v), waits(d, v))
		}
	}
}

// TestHeldAtWork: the others continue beside a host that is held while it has a grant, and that
// counts as out of service; a drained one finishes what runs.
func TestHeldAtWork(t *testing.T) {
	t.Parallel()
	policy := pace.Policy{MaxParallel: pace.Amount{N: 2}}
	d := started(t, policy)
	d.Phase, d.Batch, d.Steps = pace.Batch, 1, 1
	v := changed(fleetOf(4, nil), []string{"n1"}, func(m *rollout.Member) { grant(m); hold(m) })
	p, _ := planned(d, v, noon)
	if len(p.Offers) != 1 {
		t.Errorf("beside a held host with a grant %v are offered one, want one of 2 places", offered(p))
	}
	d, v, _ = advance(d, v, noon)
	if d.Phase != pace.Done || len(arrived(v)) != 3 {
		t.Errorf("it is %s with %v", d.StateText(), arrived(v))
	}
	reasons := rollout.Explain(d, v, "n1", noon)
	if len(reasons) != 1 || !strings.Contains(reasons[0].Detail, "it has a grant of v2 since") || !strings.Contains(reasons[0].Detail, "finishes it later: it is held") {
		t.Errorf("why of n1: %+v", reasons)
	}
	v = changed(v, []string{"n1"}, func(m *rollout.Member) { free(m); grant(m); drain(m) })
	d.Phase = pace.Batch
	if s := rollout.Describe(d, v, noon); s.Now.Working != 1 || !strings.Contains(waits(d, v), "n1 to finish; n1: it is in maintenance") {
		t.Errorf("a drained host with a grant: %+v, waits for %s", s.Now, waits(d, v))
	}
}
