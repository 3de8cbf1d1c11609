package rollout_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) // a Saturday

func amounts(t *testing.T, text string) []pace.Amount {
	t.Helper()
	all, err := pace.ParseBatches(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fleetOf is a view of n members at v1; change may say more of each.
func fleetOf(n int, change func(i int, m *rollout.Member)) rollout.State {
	var v rollout.State
	for i := range n {
		m := rollout.Member{Node: "n" + strconv.Itoa(i+1), Roles: []string{"worker"}, Version: "v1"}
		set(&m, true, false)
		if change != nil {
			change(i, &m)
		}
		v.Members = append(v.Members, m)
	}
	return v
}

// set says whether a member is up, and whether a check of it is critical.
func set(m *rollout.Member, up, critical bool) {
	s := cluster.Signals{
		Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Maintenance: cluster.MaintenanceNone, Checks: "passing",
	}
	if !up {
		s.Agent = cluster.SignalFailing
	}
	if critical {
		s.Checks = "critical"
	}
	m.Condition = cluster.Assess(s)
}

// grant lets a member be at work since noon.
func grant(m *rollout.Member) {
	m.Grant = change.Grant{ID: "1", Tag: "v2", State: pace.Offered, Since: noon}
	m.Answer = cluster.Answer{Change: cluster.VersionChange, ID: "1", Tag: "v2", State: cluster.GrantAccepted, Since: noon}
}

func arrive(m *rollout.Member) { m.Version, m.Arrived = "v2", noon }

func fail(m *rollout.Member) {
	m.Config = cluster.CategoryState{State: cluster.StateFailed, Version: "v2", Since: noon, Detail: "task puppet: exit 4: broken\nit is\nbroken\n"}
}

// started is a rollout of v2 that began at noon.
func started(t *testing.T, p pace.Policy) rollout.Document {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return rollout.Document{
		Spec:     rollout.Spec{Version: "v2", Previous: "v1", Policy: p.Complete(), Started: noon},
		Progress: pace.Progress{Since: noon, Phase: pace.Waiting},
	}
}

// admitted are the members that the present step admits.
func admitted(d rollout.Document, v rollout.State) []string { return rollout.Admitted(d, v, noon) }

// offered are the hosts that are offered a grant.
func offered(p rollout.Planned) (all []string) {
	for _, o := range p.Offers {
		all = append(all, o.Node)
	}
	return all
}

// planned plans until the document stays, and returns all decisions.
func planned(d rollout.Document, v rollout.State, now time.Time) (p rollout.Planned, decisions []pace.Decision) {
	for range 10 {
		p = rollout.Plan(d, v, now)
		decisions = append(decisions, p.Decisions...)
		d = p.Document
	}
	return p, decisions
}

// changed sets named members of a view.
func changed(v rollout.State, names []string, set func(*rollout.Member)) rollout.State {
	v.Members = slices.Clone(v.Members)
	for i := range v.Members {
		if slices.Contains(names, v.Members[i].Node) {
			set(&v.Members[i])
		}
	}
	return v
}

// TestCanaryAndBatches: one step after the other, each of the size that was
// asked for, and never more offers than may be out of service.
func TestCanaryAndBatches(t *testing.T) {
	t.Parallel()
	v := fleetOf(20, nil)
	d := started(t, pace.Policy{Canary: 2, Batches: amounts(t, "5,50%,100%"), MaxParallel: pace.Amount{N: 3}})
	steps := []struct {
		state     string
		n, offers int
	}{{"canary", 2, 2}, {"batch 1 of 3", 5, 3}, {"batch 2 of 3", 10, 3}, {"batch 3 of 3", 20, 3}}
	for i, step := range steps {
		plan, decisions := planned(d, v, noon)
		d = plan.Document
		now := admitted(d, v)
		if d.StateText() != step.state || len(now) != step.n || len(plan.Offers) != step.offers || len(decisions) != 1 || decisions[0].Kind != event.ChangeStepBegan {
			t.Fatalf("step %d: %s admits %v, offers %v, %v", i, d.StateText(), now, plan.Offers, decisions)
		}
		// while they are at work the others get what is left
		held := changed(v, offered(plan), grant)
		if again := rollout.Plan(d, held, noon); len(again.Offers) > 0 || len(again.Decisions) > 0 {
			t.Fatalf("step %d: while they work: %+v", i, again)
		}
		v = changed(v, now, arrive)
		if d.Phase == pace.Canary {
			waiting, decisions := planned(d, v, noon)
			if got := rollout.Describe(waiting.Document, v, noon).Waits; len(decisions) > 0 || !slices.Equal(got, []string{"'jorc update promote'"}) {
				t.Fatalf("a canary without min healthy waits for %v: %v", got, decisions)
			}
			d.Promoted = true
		}
	}
	end, decisions := planned(d, v, noon)
	if d := end.Document; d.Phase != pace.Done || d.Finished.IsZero() || d.Counts.Done != 20 || len(end.Offers) > 0 || decisions[0].Kind != event.ChangeDone {
		t.Errorf("the end is %+v, %v", end, decisions)
	}
}

// TestPlan: what each policy makes of a state.
func TestPlan(t *testing.T) {
	t.Parallel()
	one := pace.Policy{MaxParallel: pace.Amount{N: 1}}
	down := func(m *rollout.Member) { set(m, false, false) }
	sick := func(m *rollout.Member) { set(m, true, true) }
	for _, test := range []struct {
		name   string
		policy pace.Policy
		doc    func(*rollout.Document)
		state  rollout.State
		at     time.Duration // after noon
		ends   string
		says   string // in the last decision
		offers int
		admits int
	}{
		{
			name: "all", policy: pace.Policy{MaxParallel: pace.Amount{N: 10, Percent: true}}, state: fleetOf(25, nil),
			ends: "batch 1 of 1", offers: 2, admits: 25,
		},
		{
			name: "plain", state: fleetOf(3, nil), doc: func(d *rollout.Document) { d.Phase, d.Batch = pace.Batch, 1 },
			ends: "batch 1 of 1", admits: 3,
		},
		{
			name: "plain, all there", state: fleetOf(3, func(_ int, m *rollout.Member) { arrive(m) }),
			ends: "done", says: "3 of 3 members run v2", admits: 3,
		},
		{
			name: "members that are out take places away", policy: pace.Policy{MaxParallel: pace.Amount{N: 3}},
			state: fleetOf(10, func(i int, m *rollout.Member) { set(m, i != 0, i == 1) }),
			ends:  "batch 1 of 1", offers: 2, admits: 10, // one of them is out already
		},
		{
			name: "too many are out: only they may begin", policy: pace.Policy{MaxParallel: pace.Amount{N: 2}},
			state: fleetOf(10, func(i int, m *rollout.Member) { set(m, true, i < 4) }),
			ends:  "batch 1 of 1", offers: 2, admits: 10,
		},
		{
			name: "the canary is dead: the next one takes its place", policy: pace.Policy{Canary: 1},
			state: changed(fleetOf(8, nil), first(t, 8, 1), down), ends: "canary", offers: 1, admits: 2,
		},
		{
			name: "the canary does not answer: the next one takes its place", policy: pace.Policy{Canary: 1},
			state: changed(fleetOf(8, nil), first(t, 8, 1), func(m *rollout.Member) {
				m.Grant = change.Grant{ID: "1", State: pace.Withdrawn, Since: noon, Tries: 1}
			}), ends: "canary", offers: 1, admits: 2,
		},
		{
			name: "a canary that was healthy long enough", policy: pace.Policy{Canary: 2, MinHealthy: pace.Duration(time.Minute)},
			state: changed(fleetOf(8, nil), first(t, 8, 2), arrive), doc: func(d *rollout.Document) { d.Phase = pace.Canary },
			ends: "batch 1 of 1", offers: 2, admits: 8,
		},
		{
			name: "a canary that failed within the budget", policy: pace.Policy{Canary: 2, MaxFailures: 1, MinHealthy: pace.Duration(time.Minute)},
			state: changed(changed(fleetOf(8, nil), first(t, 8, 2), arrive), first(t, 8, 1), fail),
			ends:  "canary", offers: 1, admits: 2, // the one that failed may try again
		},
		{
			name: "one failed", policy: one, state: changed(fleetOf(8, nil), []string{"n3"}, fail), ends: "paused in phase waiting",
			says: "1 failed, and the policy allows 0: n3: config failed: task puppet: exit 4: broken",
		},
		{
			name: "it failed before", policy: one,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { fail(m); m.Config.Since = noon.Add(-time.Minute) }),
			ends:  "batch 1 of 1", offers: 1, admits: 8,
		},
		{
			name: "another version failed", policy: one,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { fail(m); m.Config.Version = "v1" }),
			ends:  "batch 1 of 1", offers: 1, admits: 8,
		},
		{
			name: "validation failed", policy: one,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { fail(m); m.Validation, m.Config = m.Config, cluster.CategoryState{} }),
			ends:  "paused in phase waiting", says: "validation failed",
		},
		{
			name: "it died at work", policy: one, at: 6 * time.Minute,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { grant(m); down(m); m.DownSince = noon }),
			ends:  "paused in phase waiting", says: "n3: it has a grant and is down since 2026",
		},
		{
			name: "it reboots", policy: one, at: 4 * time.Minute,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { grant(m); down(m); m.DownSince = noon }),
			ends:  "waiting",
		},
		{
			name: "it is down with a grant of the rollout before: out of service, not failed", policy: one, at: time.Hour,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) {
				grant(m)
				m.Grant.Tag, m.Answer.Tag, m.DownSince = "v1", "v1", noon.Add(-time.Hour)
				down(m)
			}),
			ends: "batch 1 of 1", admits: 8, // one may be out, and n3 is
		},
		{
			name: "so it is for a re-triggered version", policy: one, at: 4 * time.Minute,
			state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) { grant(m); down(m); m.DownSince = noon.Add(-time.Hour) }),
			ends:  "waiting",
		},
		{
			name: "too slow", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, NodeDeadline: pace.Duration(time.Minute)}, at: 2 * time.Minute,
			state: changed(fleetOf(8, nil), []string{"n3"}, grant), ends: "paused in phase waiting", says: "longer than 1m0s",
		},
		{
			name: "wiped", policy: one, state: changed(fleetOf(8, nil), []string{"n3"}, func(m *rollout.Member) {
				grant(m)
				m.Answer.State, m.Answer.Reason = cluster.GrantFailed, "the host lost its record of the grant"
			}),
			ends: "paused in phase waiting", says: "n3: the host lost its record of the grant",
		},
		{
			name: "rolled back", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, OnFailure: "rollback", Canary: 1},
			state: changed(changed(fleetOf(8, nil), []string{"n3"}, fail), []string{"n3", "n4"}, arrive), ends: "rolling back",
			says: "v2 is rolled back to v1", offers: 1, admits: 8,
		},
		{
			name: "nothing to roll back to", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, OnFailure: "rollback"},
			doc: func(d *rollout.Document) { d.Previous = "" }, state: changed(fleetOf(8, nil), []string{"n3"}, fail),
			ends: "paused in phase waiting", says: "no version is known",
		},
		{
			name: "no progress", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, ProgressDeadline: pace.Duration(time.Minute)}, at: 2 * time.Minute,
			doc:   func(d *rollout.Document) { d.Phase, d.Batch = pace.Batch, 1 },
			state: changed(fleetOf(3, nil), []string{"n2"}, func(m *rollout.Member) { m.Hold = "held by ann" }), ends: "paused in phase batch 1 of 1",
			says: "no member arrived for longer than 1m0s; it waits for n1, n3 to begin", admits: 3,
		},
		{
			name: "the orchestrator was away", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, ProgressDeadline: pace.Duration(time.Minute)}, at: 2 * time.Minute,
			doc:   func(d *rollout.Document) { d.Phase, d.Batch = pace.Batch, 1 },
			state: rollout.State{Members: fleetOf(3, nil).Members, PlannedSince: noon.Add(110 * time.Second)},
			ends:  "batch 1 of 1", offers: 1, admits: 3,
		},
		{
			name: "Consul was restored", policy: one, state: rollout.State{Members: fleetOf(3, nil).Members, Quiet: noon.Add(time.Second)},
			ends: "batch 1 of 1", admits: 3,
		},
		{
			name: "the cluster is paused", policy: one, state: rollout.State{Members: fleetOf(3, nil).Members, Halted: "the cluster is paused"},
			ends: "batch 1 of 1", admits: 3,
		},
		{name: "no members", policy: one, ends: "waiting"},
		{
			name: "only managers and strangers", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, Order: []pace.Role{{Name: "old", Kept: true}}},
			state: fleetOf(3, func(i int, m *rollout.Member) { m.Roles, m.Outside = [][]string{{"manager"}, {"old"}, nil}[i], i == 2 }),
			ends:  "waiting",
		},
		{name: "all are down", policy: one, state: fleetOf(3, func(_ int, m *rollout.Member) { down(m) }), ends: "waiting"},
		{
			name: "one is dead, the others are there", policy: pace.Policy{MaxParallel: pace.Amount{N: 2}},
			state: fleetOf(6, func(i int, m *rollout.Member) {
				arrive(m)
				set(m, i > 0, false)
				m.Version = []string{"v1", "v2"}[min(i, 1)]
			}),
			ends: "done", says: "5 of 6 members", admits: 6,
		},
		{
			name: "half of them left the catalog two days ago: no share is of them", policy: pace.Policy{MaxParallel: pace.Amount{N: 50, Percent: true}},
			state: fleetOf(6, func(i int, m *rollout.Member) {
				if i > 2 {
					m.Condition, m.Away = cluster.Assess(cluster.Signals{Agent: cluster.SignalNone}), noon.Add(-48*time.Hour)
				}
			}),
			ends: "batch 1 of 1", admits: 6, offers: 1,
		},
		{
			name: "damaged policy", policy: one, doc: func(d *rollout.Document) { d.Policy.Canary = -3 },
			state: fleetOf(2, nil), ends: "paused in phase waiting", says: "trigger again",
		},
		{
			name: "damaged phase", policy: one, doc: func(d *rollout.Document) { d.Phase, d.Batch = "?", -7 },
			state: fleetOf(2, nil), ends: "batch 1 of 1", offers: 1, admits: 2,
		},
		{
			name: "a batch that does not exist", policy: one, doc: func(d *rollout.Document) { d.Phase, d.Batch = pace.Batch, 99 },
			state: fleetOf(2, func(_ int, m *rollout.Member) { arrive(m) }), ends: "done", says: "2 of 2", admits: 2,
		},
		{
			name: "a stranded host continues in its place", policy: one, state: changed(fleetOf(3, nil), []string{"n2"}, func(m *rollout.Member) {
				grant(m)
				m.Answer.Tag, m.Answer.State = "v1", cluster.GrantStranded
			}),
			ends: "batch 1 of 1", offers: 1, admits: 3,
		},
		{
			name: "a stranded host of a role that is kept back does not", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, Order: []pace.Role{{Name: "db"}, {Name: "web", Kept: true}}},
			state: fleetOf(2, func(i int, m *rollout.Member) {
				if m.Roles = []string{[]string{"db", "web"}[i]}; i == 1 {
					grant(m)
					m.Answer.Tag, m.Answer.State = "v1", cluster.GrantStranded
				}
			}),
			ends: "batch 1 of 1", admits: 1,
		},
		{
			name: "a stranded host whose role is not due waits, and the role before it begins", policy: pace.Policy{MaxParallel: pace.Amount{N: 2}, Order: []pace.Role{{Name: "db"}, {Name: "web"}}},
			state: fleetOf(2, func(i int, m *rollout.Member) {
				if m.Roles = []string{[]string{"db", "web"}[i]}; i == 1 {
					grant(m)
					m.Answer.Tag, m.Answer.State = "v1", cluster.GrantStranded
				}
			}),
			ends: "batch 1 of 1", offers: 1, admits: 1,
		},
		{
			name: "a stranded host whose role is not due keeps the only place", policy: pace.Policy{MaxParallel: pace.Amount{N: 1}, Order: []pace.Role{{Name: "db"}, {Name: "web"}}},
			state: fleetOf(2, func(i int, m *rollout.Member) {
				if m.Roles = []string{[]string{"db", "web"}[i]}; i == 1 {
					grant(m)
					m.Answer.Tag, m.Answer.State = "v1", cluster.GrantStranded
				}
			}),
			ends: "batch 1 of 1", admits: 1,
		},
		{
			name: "what an operator gave up on does not count", policy: one, state: changed(fleetOf(3, nil), []string{"n2"}, func(m *rollout.Member) {
				grant(m)
				sick(m)
				m.Grant.State = pace.GivenUp
			}),
			ends: "batch 1 of 1", offers: 1, admits: 3,
		},
		{
			name: "all but one cannot begin", policy: one, state: fleetOf(4, func(i int, m *rollout.Member) {
				switch i {
				case 0:
					m.Hold = "held"
				case 1:
					m.Grant, m.Answer = change.Grant{ID: "1", State: pace.Offered, Tag: "v2"}, cluster.Answer{Change: cluster.VersionChange, Declined: "1", Reason: "disk full"}
				case 2:
					m.Grant = change.Grant{ID: "1", State: pace.Withdrawn, Tries: 3, Since: noon}
				}
			}),
			ends: "batch 1 of 1", offers: 1, admits: 4,
		},
		{
			name: "one that became ready is offered another", policy: one, state: fleetOf(1, func(_ int, m *rollout.Member) {
				m.Grant, m.Answer = change.Grant{ID: "1", State: pace.Offered, Tag: "v2"}, cluster.Answer{Change: cluster.VersionChange, Declined: "1", Reason: "disk full", Ready: true}
			}),
			ends: "batch 1 of 1", offers: 1, admits: 1,
		},
	} {
		d := started(t, test.policy)
		if d.Policy.Plain() {
			d.Phase, d.Batch = pace.Batch, 1
		}
		if test.doc != nil {
			test.doc(&d)
		}
		now := noon.Add(test.at)
		plan, decisions := planned(d, test.state, now)
		d = plan.Document
		if got := rollout.Admitted(d, test.state, now); d.StateText() != test.ends || len(plan.Offers) != test.offers || len(got) != test.admits {
			t.Errorf("%s: %s, offers %v, admits %v; want %s, %d, %d members", test.name, d.StateText(), plan.Offers, got, test.ends, test.offers, test.admits)
		}
		if test.says != "" && (len(decisions) == 0 || !strings.Contains(decisions[len(decisions)-1].Text+decisions[len(decisions)-1].Reason, test.says)) {
			t.Errorf("%s: %+v, want %q", test.name, decisions, test.says)
		}
	}
}

// TestWithdraw: an offer that is not answered in time, or whose host may no longer
// begin, is withdrawn; one that the host accepted, or that is void, is not.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 5}})
	d.Phase, d.Batch = pace.Batch, 1
	offer := func(m *rollout.Member) {
		m.Grant = change.Grant{ID: "1", Tag: "v2", State: pace.Offered, Since: noon}
	}
	v := fleetOf(7, func(i int, m *rollout.Member) {
		offer(m)
		switch i {
		case 1:
			m.Hold = "held"
		case 2:
			grant(m)
		case 3:
			m.Void = true
		case 4:
			m.Outside = true
		case 5:
			m.Grant.Until = noon.Add(10 * time.Second)
		case 6:
			m.Version = "v2" // it has arrived with an earlier grant
		}
	})
	for after, want := range map[time.Duration][]string{
		time.Second: {"n2", "n5", "n7"}, 11 * time.Second: {"n2", "n5", "n6", "n7"}, 30 * time.Second: {"n1", "n2", "n5", "n6", "n7"},
	} {
		got := rollout.Plan(d, v, noon.Add(after)).Withdrawals
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("after %v: %v are withdrawn, want %v", after, got, want)
		}
	}
}

// TestWithdrawnEarly: an offer that is withdrawn before its time is over, for a freeze or a hold, does not
// count as unanswered: the host is offered another as soon as it may begin.
func TestWithdrawnEarly(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 1}})
	d.Phase, d.Batch, d.Steps = pace.Batch, 1, 1
	for after, offers := range map[time.Duration]int{29 * time.Second: 1, 30 * time.Second: 0} {
		withdrawn := noon.Add(after)
		v := fleetOf(1, func(_ int, m *rollout.Member) {
			m.Grant = change.Grant{ID: "1", Tag: "v2", State: pace.Offered, Since: noon}.Withdrawn(withdrawn)
		})
		if p := rollout.Plan(d, v, withdrawn.Add(time.Second)); len(p.Offers) != offers || v.Members[0].Grant.State != pace.Withdrawn {
			t.Errorf("withdrawn after %v: %+v is offered %v, want %d offers", after, v.Members[0].Grant, p.Offers, offers)
		}
	}
}

// first are the first of members in the order of a rollout of v2 without roles.
func first(t *testing.T, members, n int) []string {
	t.Helper()
	v := fleetOf(members, nil)
	slices.SortFunc(v.Members, func(a, b rollout.Member) int {
		return pace.Policy{}.KeyOf("v2", a.Node, nil, "").Compare(pace.Policy{}.KeyOf("v2", b.Node, nil, ""))
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
	order, err := pace.ParseOrder("db=1,web")
	if err != nil {
		t.Fatal(err)
	}
	v := fleetOf(12, func(i int, m *rollout.Member) {
		m.Roles = []string{[]string{"db", "web", "cache"}[i%3], "worker"}
		m.Zone = []string{"b", "a"}[i/6]
	})
	d := started(t, pace.Policy{Order: order, ZoneByZone: true, MaxParallel: pace.Amount{N: 4}})
	for i, want := range []struct {
		members string
		offers  int
	}{{"n7 n10", 1}, {"n1 n4", 1}, {"n8 n11", 2}, {"n2 n5", 2}, {"n9 n12", 2}, {"n3 n6", 2}} {
		plan, _ := planned(d, v, noon)
		d = plan.Document
		if got := strings.Join(admitted(d, v), " "); got != want.members || len(plan.Offers) != want.offers {
			t.Fatalf("step %d: %s with %v, want %s with %d", i, got, plan.Offers, want.members, want.offers)
		}
		if i == 3 { // a host joins a zone that is done: its turn comes when the present one is done, too
			late := rollout.Member{Node: "n13", Roles: []string{"db"}, Zone: "a"}
			set(&late, true, false)
			with := rollout.State{Members: append(slices.Clone(v.Members), late)}
			for _, busy := range []rollout.State{with, changed(with, []string{"n2"}, grant), changed(with, []string{"n2"}, arrive)} {
				if got, _ := planned(d, busy, noon); slices.Contains(admitted(got.Document, busy), "n13") {
					t.Error("n13 is admitted while another zone is at work")
				}
			}
			after := changed(with, []string{"n2", "n5"}, arrive)
			if got, _ := planned(d, after, noon); !slices.Equal(admitted(got.Document, after), []string{"n7", "n10", "n13"}) && !slices.Contains(admitted(got.Document, after), "n13") {
				t.Errorf("n13 is not admitted: %v", admitted(got.Document, after))
			}
		}
		v = changed(v, admitted(d, v), arrive)
	}
}

// TestLogicalMember: a member without a host takes no part and takes no place of
// others; a host that ran a version and left the catalog does, and so does an open
// grant.
func TestLogicalMember(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{MaxParallel: pace.Amount{N: 1}})
	for _, test := range []struct {
		name    string
		change  func(m *rollout.Member)
		members int
		offers  int
	}{
		{"logical", func(m *rollout.Member) { m.Version = "" }, 2, 1},
		{"left the catalog", func(*rollout.Member) {}, 3, 0},
		{"logical with a grant", func(m *rollout.Member) { m.Version = ""; grant(m) }, 2, 0},
	} {
		v := fleetOf(3, func(i int, m *rollout.Member) {
			if i == 0 {
				m.Condition = cluster.Assess(cluster.Signals{})
				test.change(m)
			}
		})
		next := rollout.Plan(d, v, noon).Document
		plan := rollout.Plan(next, v, noon)
		if status := rollout.Describe(next, v, noon); status.Now.Members != test.members || len(plan.Offers) != test.offers {
			t.Errorf("%s: %d members take part, %v are offered a grant; want %d and %d", test.name, status.Now.Members, offered(plan), test.members, test.offers)
		}
	}
}

// TestJoinsDuringRollout: a host that joins while a rollout is running takes its place in the order. It begins at once
// where its step has begun, and stays on its version until that begins otherwise.
func TestJoinsDuringRollout(t *testing.T) {
	t.Parallel()
	d := started(t, pace.Policy{Batches: amounts(t, "50%,100%"), MaxParallel: pace.Amount{N: 100, Percent: true}, Bake: pace.Duration(time.Hour)})
	v := fleetOf(8, nil)
	d = rollout.Plan(d, v, noon).Document
	v = changed(v, admitted(d, v), arrive)
	now := noon.Add(time.Minute)
	d = rollout.Plan(d, v, now).Document // the first half bakes
	var early, late string
	for i := 9; i < 60; i++ {
		with := v
		joined := rollout.Member{Node: "n" + strconv.Itoa(i), Roles: []string{"worker"}, Version: "v1"}
		set(&joined, true, false)
		with.Members = append(slices.Clone(v.Members), joined)
		in := slices.Contains(admitted(d, with), joined.Node)
		plan := rollout.Plan(rollout.Plan(d, with, now).Document, with, now) // a step that is no longer done bakes again
		if got := slices.Contains(offered(plan), joined.Node); got != in || plan.Document.Batch != 1 {
			t.Errorf("%s joined, of the step that has begun: %v; it is offered a grant: %v; %+v", joined.Node, in, got, plan.Document.Progress)
		}
		if in {
			early = joined.Node
			continue
		}
		late = joined.Node
		now := now.Add(2 * time.Hour)
		next := rollout.Plan(d, with, now).Document
		if next.Batch != 2 || !slices.Contains(offered(rollout.Plan(next, with, now)), late) {
			t.Errorf("%s joined, and its step has begun: %+v", late, next.Progress)
		}
	}
	if early == "" || late == "" {
		t.Errorf("of the first step joined %q, of the second %q", early, late)
	}
}
