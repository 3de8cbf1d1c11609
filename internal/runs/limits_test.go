package runs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/consultest"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
)

func batches(t *testing.T, text string) []pace.Amount {
	t.Helper()
	all, err := pace.ParseBatches(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// healthy makes a member's checks pass, or not.
func (w *world) healthy(node string, healthy bool) {
	for i := range w.members {
		if w.members[i].Node == node {
			w.members[i].Condition = cluster.Condition{Agent: cluster.AgentUp, Health: consul.HealthCritical}
			if healthy {
				w.members[i].Condition.Health = consul.HealthPassing
			}
		}
	}
	if w.out == nil {
		w.out = map[string]time.Time{}
	}
	w.out[node] = w.now
}

// TestPlanMaxFailures: after one failure more than allowed no further member
// begins, what is queued is taken back, and what runs ends.
func TestPlanMaxFailures(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c", "d", "e", "f")
	one := 1
	w.ask("r", Request{Workflow: "w", Limits: Limits{MaxParallel: amount(t, "2"), MaxFailures: &one}})
	w.want(t, "r", "running: a=pending b=pending c=waiting d=waiting e=waiting f=waiting | a b")
	w.begin("a", "b")
	w.end(Failed, "a")
	w.want(t, "r", "running: a=failed b=running c=pending d=waiting e=waiting f=waiting | b c")
	w.end(Done, "b")
	w.want(t, "r", "running: a=failed b=done c=pending d=pending e=waiting f=waiting | c d")
	w.begin("c")
	w.end(Failed, "c")
	w.want(t, "r", "failed: a=failed b=done c=failed d=cancelled e=waiting f=waiting")
	r := w.runs["r"].Run
	if want := "2 of 6 members failed or were lost, at most 1 may; 3 did not start"; r.Why != want {
		t.Errorf("got %q, want %q", r.Why, want)
	}
	if n := slices.IndexFunc(w.told, func(d decided) bool { return d.Kind == event.ChangeStopped }); n < 0 {
		t.Error("no event says that the run stopped")
	}
}

// TestPlanCanaryAndBatches: the first members come alone, then each batch once the one
// before it has settled.
func TestPlanCanaryAndBatches(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c", "d", "e")
	w.ask("r", Request{Workflow: "w", Limits: Limits{Canary: 1, Batches: batches(t, "60%,100%")}})
	w.want(t, "r", "running: a=pending b=waiting c=waiting d=waiting e=waiting | a")
	w.begin("a")
	w.end(Done, "a")
	w.want(t, "r", "running: a=done b=pending c=pending d=waiting e=waiting | b c")
	w.begin("b", "c")
	w.end(Done, "c")
	w.want(t, "r", "running: a=done b=running c=done d=waiting e=waiting | b")
	w.end(Failed, "b")
	w.want(t, "r", "failed: a=done b=failed c=done d=waiting e=waiting")
}

// TestPlanOrderAndZones: one role after the other, and of each role one zone, as package pace decides for versions; a role has a
// limit of its own, and the canary is of the first group.
func TestPlanOrderAndZones(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c", "d", "e", "f")
	for i, at := range []struct{ role, zone string }{{"web", "y"}, {"db", "y"}, {"web", "x"}, {"db", "x"}, {"web", "y"}, {"db", "y"}} {
		w.members[i].Roles, w.members[i].Zone = []string{at.role}, at.zone
	}
	order, err := pace.ParseOrder("db=1,web")
	if err != nil {
		t.Fatal(err)
	}
	w.ask("r", Request{Workflow: "w", Limits: Limits{Order: order, ZoneByZone: true}})
	for _, step := range []struct{ jobs, ends string }{
		{"d", "d"}, {"b", "b"}, {"f", "f"}, {"c", "c"}, {"a e", "a"}, {"e", "e"},
	} {
		w.plan()
		if got := w.queued(); got != step.jobs {
			t.Fatalf("jobs of %q, want %q: %s", got, step.jobs, w.show("r"))
		}
		w.begin(step.ends)
		w.end(Done, step.ends)
	}
	w.want(t, "r", "done: a=done b=done c=done d=done e=done f=done")

	w.ask("s", Request{Workflow: "w", Limits: Limits{Canary: 1, ZoneByZone: true}})
	w.want(t, "s", "running: a=waiting b=waiting c=pending d=waiting e=waiting f=waiting | c")
	w.begin("c")
	w.end(Failed, "c")
	w.want(t, "s", "failed: a=waiting b=waiting c=failed d=waiting e=waiting f=waiting")
}

// queued are the members with a job that has not ended.
func (w *world) queued() string {
	var nodes []string
	for _, node := range sorted(w.queues) {
		if slices.ContainsFunc(w.queues[node].Jobs, func(e Queued) bool { return !e.State.Ended() }) {
			nodes = append(nodes, node)
		}
	}
	return strings.Join(nodes, " ")
}

// TestPlanMinHealthy: a member keeps its place until it has been in service for long
// enough without a break.
func TestPlanMinHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.healthy("a", true)
	w.healthy("b", true)
	w.ask("r", Request{Workflow: "w", Limits: Limits{MaxParallel: amount(t, "1"), MinHealthy: pace.Duration(time.Minute)}})
	w.plan()
	w.begin("a")
	w.end(Done, "a")
	w.want(t, "r", "running: a=done b=waiting")
	w.now = w.now.Add(50 * time.Second)
	w.healthy("a", false)
	w.want(t, "r", "running: a=done b=waiting")
	if got, want := w.runs["r"].Run.Why, "a: has to be in service for 1m0s (critical)"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	w.now = w.now.Add(50 * time.Second)
	w.healthy("a", true)
	w.want(t, "r", "running: a=done b=waiting")
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "running: a=done b=pending | b")
	w.begin("b")
	w.now = w.now.Add(time.Minute)
	w.end(Done, "b")
	w.want(t, "r", "running: a=done b=done")
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "done: a=done b=done")
}

// TestPlanDisturbs: a job that disturbs stays in its queue until its member is in service, for as long
// as min healthy wants, and the plan says when that is; the budget keeps the others back.
func TestPlanDisturbs(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c/manager")
	w.out = map[string]time.Time{}
	w.members[1].Disturbing = []string{"w"}
	w.barred = map[string]string{}
	w.ask("r", Request{Workflow: "w", Disturbs: true, Limits: Limits{MinHealthy: pace.Duration(time.Minute)}})
	w.budget = &pace.Budget{MaxOut: amount(t, "1")}
	w.plan()
	if c := w.queues; len(c["a"].Jobs) != 1 || !c["a"].Jobs[0].Disturbs || len(c["b"].Jobs) != 0 {
		t.Fatalf("the queues are %+v, want the job in that of a alone", c)
	}
	w.begin("a")
	w.end(Done, "a")
	c := w.plan()
	if !c.Again.Equal(w.now.Add(time.Minute)) || len(w.queues["a"].Jobs) != 1 || len(w.queues["b"].Jobs) != 0 {
		t.Errorf("it plans again at %s with the queues %+v, want a's job for a minute", c.Again, w.queues)
	}
	w.now = w.now.Add(time.Minute)
	w.barred["b"] = "it is held"
	if w.plan(); len(w.queues["a"].Jobs) != 0 || len(w.queues["b"].Jobs) != 0 || w.runs["r"].Run.Why != "b: it is held" {
		t.Errorf("the queues are %+v and the run waits because of %q, want none and the hold of b", w.queues, w.runs["r"].Run.Why)
	}
	delete(w.barred, "b")
	w.plan()
	if len(w.queues["b"].Jobs) != 1 {
		t.Errorf("the queue of b is %+v, want the job", w.queues["b"])
	}
	w.begin("b")
	w.end(Failed, "b")
	if w.plan(); len(w.queues["b"].Jobs) != 0 || w.runs["r"].Run.State != Failed {
		t.Errorf("the queue of b is %+v and the run %s: what failed is over", w.queues["b"], w.runs["r"].Run.State)
	}
}

// TestPlanDisturbsManagers: what runs on managers and gates disturbs no member.
func TestPlanDisturbsManagers(t *testing.T) {
	t.Parallel()
	m := &cluster.Member{Disturbing: []string{"w"}}
	for _, r := range []Run{{Request: Request{Workflow: "w", OnManager: true}}, {Gate: true, Request: Request{Workflow: "w"}}, {Request: Request{Workflow: "v"}}} {
		if r.disturbs(m) {
			t.Errorf("%+v disturbs", r)
		}
	}
	if err := (Request{Workflow: "w", OnManager: true, Disturbs: true}).Check(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a run on a manager that disturbs: %v, want ErrInvalid", err)
	}
}

// TestPlanNodes: a retry is for the members that it names and that still match.
func TestPlanNodes(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c")
	w.ask("r", Request{Workflow: "w", Nodes: []string{"c", "gone", "a"}})
	w.want(t, "r", "running: a=pending c=pending | a c")
}

// TestPlanAllFail: whatever the limits are, and however members fail, at most
// max-parallel + max-failures of them are touched, and none twice.
func TestPlanAllFail(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(30)
		var nodes []string
		for i := range n {
			nodes = append(nodes, fmt.Sprintf("n%02d", i))
		}
		w := newWorld(nodes...)
		most := r.IntN(5)
		l := Limits{MaxParallel: pace.Amount{N: 1 + r.IntN(6)}, MaxFailures: &most}
		if r.IntN(2) == 0 {
			l.MaxParallel = pace.Amount{N: 1 + r.IntN(100), Percent: true}
		}
		if r.IntN(3) == 0 {
			l.Canary = 1 + r.IntN(3)
		}
		if r.IntN(3) == 0 {
			l.Batches = []pace.Amount{{N: 10 + r.IntN(20), Percent: true}, {N: 50, Percent: true}, {N: 100, Percent: true}}
		}
		if r.IntN(3) == 0 {
			l.MinHealthy = pace.Duration(time.Minute)
		}
		if r.IntN(4) == 0 {
			l.ZoneByZone = true
			for i := range w.members {
				w.members[i].Zone = string(rune('a' + r.IntN(3)))
			}
		}
		w.ask("r", Request{Workflow: "w", Limits: l})
		bound := l.MaxParallel.Of(n) + most
		for step := 0; !w.runs["r"].Run.State.Ended(); step++ {
			if step > 1000 {
				t.Fatalf("seed %d: the run does not end: %s", seed, w.show("r"))
			}
			w.plan()
			w.now = w.now.Add(time.Duration(r.IntN(40)) * time.Second)
			for _, node := range nodes {
				switch r.IntN(6) {
				case 0, 1:
					w.begin(node)
				case 2, 3:
					w.report(node, func(e *Queued) {
						if e.State == Running {
							e.State, e.Ended = Failed, w.now
						}
					})
				case 4:
					if len(w.queues[node].Jobs) > 0 && r.IntN(4) == 0 {
						w.agent(node, false)
					}
				}
			}
			touched := 0
			for _, times := range w.times {
				touched++
				if times > 1 {
					t.Fatalf("seed %d: a member was touched %d times", seed, times)
				}
			}
			if touched > bound {
				t.Fatalf("seed %d: %d members were touched, at most %v + %d may (of %d): %s", seed, touched, l.MaxParallel, most, n, w.show("r"))
			}
			if l.ZoneByZone {
				for _, m := range w.members {
					if j, begun := w.runs["r"].Jobs[m.Node]; begun && j.State.Ended() {
						continue
					}
					for _, o := range w.members {
						if _, began := w.runs["r"].Jobs[o.Node]; began && o.Zone > m.Zone {
							t.Fatalf("seed %d: %s of zone %s began before %s of zone %s had ended: %s", seed, o.Node, o.Zone, m.Node, m.Zone, w.show("r"))
						}
					}
				}
			}
			if l.Canary > 0 && len(w.times) > l.Canary {
				first := slices.Clone(w.members)
				slices.SortStableFunc(first, func(a, b cluster.Member) int { return strings.Compare(a.Zone, b.Zone) })
				for _, m := range first[:min(l.Canary, n)] {
					node := m.Node
					if s := w.runs["r"].Jobs[node].State; !s.Ended() {
						t.Fatalf("seed %d: others began before the first %d had ended: %s", seed, l.Canary, w.show("r"))
					}
				}
			}
		}
	}
}

func TestLimitsCheck(t *testing.T) {
	t.Parallel()
	less := -1
	for name, l := range map[string]Limits{
		"no end": {Batches: batches(t, "10%,50%")}, "falling": {Batches: batches(t, "50%,10%,100%")}, "negative": {MaxFailures: &less},
		"canary and batch": {Canary: 3, Batches: batches(t, "2,100%")}, "canary below zero": {Canary: -1},
	} {
		if err := (Request{Workflow: "w", Limits: l}).Check(); err == nil {
			t.Errorf("%s: %+v is accepted", name, l)
		}
	}
}

// TestMaxFailures: a workflow that fails on every member is started on
// max-parallel + max-failures of them, and a retry is for the others and the failed.
func TestMaxFailures(t *testing.T) {
	t.Parallel()
	nodes := []string{"a", "b", "c", "d", "e", "f"}
	x := newSite(t, nodes...)
	x.orchestrate("o", quickDecider())
	var tasks []config.Task
	tasks = append(tasks, sh("one", `[ -e ok ] || exit 1`))
	for _, node := range nodes {
		x.work(node, tasks...)
	}
	one := 1
	x.ask("r", Request{Limits: Limits{MaxParallel: amount(t, "1"), MaxFailures: &one}})
	d := x.becomes("r", "failed: a=failed b=failed c=pending d=pending e=pending f=pending")
	for _, node := range nodes[2:] {
		if got := x.traces(node, "ran"); got != "" {
			t.Errorf("%s ran %q", node, got)
		}
	}
	if want := "2 of 6 members failed or were lost, at most 1 may; 4 did not start"; d.Why != want {
		t.Errorf("got %q, want %q", d.Why, want)
	}
	x.wasTold(event.ChangeStopped, "")
	q, err := d.Retry(Request{})
	if err != nil || !slices.Equal(q.Nodes, nodes) || q.Workflow != "w" || q.RetryOf != "r" {
		t.Errorf("Retry = %+v, %v", q, err)
	}
}

// TestAllFail: a workflow that fails on every member is started on at most
// max-parallel + max-failures of them, on none twice, also while one orchestrator
// takes the place of another.
func TestAllFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		parallel, batches string
		first, failures   int
		most              int
	}{
		{"1", "", 0, 0, 1},
		{"2", "", 0, 1, 3},
		{"50%", "", 0, 2, 6},
		{"3", "", 1, 1, 4},
		{"4", "25%,100%", 0, 1, 5},
		{"100%", "", 0, 3, 8},
	} {
		t.Run(fmt.Sprintf("%s parallel, %d first, batches %s, %d failures", test.parallel, test.first, test.batches, test.failures), func(t *testing.T) {
			t.Parallel()
			nodes := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
			x := newSite(t, nodes...)
			for _, node := range nodes {
				x.work(node, sh("one", "exit 1"))
			}
			l := Limits{MaxParallel: amount(t, test.parallel), Canary: test.first, MaxFailures: &test.failures}
			if test.batches != "" {
				l.Batches = batches(t, test.batches)
			}
			x.ask("r", Request{Limits: l})
			stop := x.orchestrate("o0", quickDecider())
			changes, begun := 0, 0
			consultest.Eventually(t, "the end of the run", func(ctx context.Context) error {
				d, err := x.runs.Show(ctx, "r")
				if err != nil || d.State.Ended() {
					return err
				}
				if now := d.Counts.Members - d.Counts.Pending; now > begun { // each time that something has happened
					begun = now
					stop()
					changes++
					stop = x.orchestrate(fmt.Sprint("o", changes), quickDecider())
				}
				return errors.New(string(d.State))
			})
			touched := 0
			for _, node := range nodes {
				switch ran := strings.Count(x.traces(node, "ran"), "one\n"); ran {
				case 0:
				case 1:
					touched++
				default:
					t.Errorf("%s ran it %d times", node, ran)
				}
			}
			if touched > test.most || touched <= test.failures {
				t.Errorf("%d members were touched, at most %d may", touched, test.most)
			}
		})
	}
}

// TestBlocker: what a run in progress waits for; whether it disturbs is asked as everywhere else, of its members' workflows, too.
func TestBlocker(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	frozen := pace.Freezes{{ID: "f1", From: now.Add(-time.Hour), To: now.Add(time.Hour)}}
	disturbing := []cluster.Member{{Node: "a", Disturbing: []string{"w"}}}
	for name, test := range map[string]struct {
		run  Run
		s    Situation
		want pace.Blocker
	}{
		"approval":             {Run{State: NeedsApproval}, Situation{}, pace.BlockedByPromotion},
		"stopped":              {Run{State: Running, Stopped: "2 failed"}, Situation{}, pace.BlockedByPause},
		"paused cluster":       {Run{State: Pending}, Situation{Still: "paused"}, pace.BlockedByCluster},
		"window":               {Run{Request: Request{Windows: windowsAt(t, "14:00-15:00")}}, Situation{}, pace.BlockedByWindow},
		"freeze":               {Run{Request: Request{Workflow: "w", Disturbs: true}}, Situation{Freezes: frozen, Members: []cluster.Member{{Node: "a"}}}, pace.BlockedByFreeze},
		"freeze, by workflow":  {Run{Request: Request{Workflow: "w"}}, Situation{Freezes: frozen, Members: disturbing}, pace.BlockedByFreeze},
		"exception":            {Run{Request: Request{Workflow: "w", Exceptions: pace.Exceptions{DuringFreeze: "why"}}}, Situation{Freezes: frozen, Members: disturbing}, pace.BlockedByHosts},
		"freeze, no disturber": {Run{Request: Request{Workflow: "v"}}, Situation{Freezes: frozen, Members: disturbing}, pace.BlockedByHosts},
	} {
		test.s.Now = now
		if got := test.run.blocker(test.s); got != test.want {
			t.Errorf("%s: it waits for %q, want %q", name, got, test.want)
		}
	}
}

// TestPlaceOfTheRunBefore: a host that a run is done with is counted again before another run takes it: where the budget was
// lowered meanwhile, not all of them go out again.
func TestPlaceOfTheRunBefore(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c")
	w.budget = &pace.Budget{MaxOut: amount(t, "3")}
	w.ask("r", Request{Workflow: "w", Disturbs: true})
	w.ask("s", Request{Workflow: "w", Disturbs: true})
	w.plan()
	has := func(run string) (nodes int) {
		for _, q := range w.queues {
			if q.has(run) {
				nodes++
			}
		}
		return nodes
	}
	if r, s := has("r"), has("s"); r != 3 || s != 0 {
		t.Fatalf("%d nodes have r, and %d s; want all of them r", r, s)
	}
	w.begin("a", "b", "c")
	w.end(Done, "a", "b", "c")
	w.budget = &pace.Budget{MaxOut: amount(t, "1")}
	for range 4 {
		if c := w.plan(); has("r")+has("s") == 0 && !c.Again.Equal(w.now) {
			t.Errorf("no node has a job, and it is planned again at %v, want %v", c.Again, w.now)
		}
		if n := has("s"); n > 1 {
			t.Fatalf("%d nodes have s, and the budget is 1", n)
		}
	}
	if n := has("s"); n != 1 {
		t.Errorf("%d nodes have s, want one", n)
	}
}
