package runs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/recorded"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is what a plan is made of, and what became of it.
type world struct {
	now     time.Time
	members []cluster.Member
	down    map[string]time.Time
	out     map[string]time.Time
	barred  map[string]string
	freezes pace.Freezes
	budget  *pace.Budget
	still   string
	filter  *cluster.Filter
	runs    map[string]Active
	queues  map[string]Queue
	tails   map[string]string
	told    []decided
	times   map[string]int // how often a job was enqueued

	t        *testing.T
	recorder *recorded.Recorder // nil: plans are not recorded
}

func newWorld(nodes ...string) *world {
	w := &world{now: epoch, down: map[string]time.Time{}, runs: map[string]Active{}, queues: map[string]Queue{}, tails: map[string]string{}, times: map[string]int{}}
	for _, n := range nodes {
		name, role, _ := strings.Cut(n, "/")
		m := cluster.Member{Node: name, Agent: cluster.AgentUp, Roles: []string{cluster.RoleWorker}}
		if role != "" {
			m.Roles = []string{role}
		}
		w.members = append(w.members, m)
	}
	return w
}

func (w *world) ask(id string, q Request) {
	s := Pending
	if q.NeedsApproval {
		s = NeedsApproval
	}
	w.runs[id] = Active{Run: Run{ID: id, Request: q, Created: w.now.Add(time.Duration(len(w.runs)) * time.Millisecond), State: s}}
}

func (w *world) change(id string, change func(*Run)) {
	a := w.runs[id]
	change(&a.Run)
	w.runs[id] = a
}

// plan makes a plan and does what it says.
func (w *world) plan() Changes {
	s := Situation{Now: w.now, Members: w.members, Filter: w.filter, Holder: "holder", Still: w.still, Down: maps.Clone(w.down), Out: w.out, Freezes: w.freezes, Grace: time.Minute}
	if w.budget != nil {
		s.Barred = func(node string) string { return w.barred[node] }
		s.Left = func(_ pace.Demand, taken []string) *pace.Account {
			hosts := make([]pace.Host, len(w.members))
			for i := range w.members {
				node := w.members[i].Node
				hosts[i].Node = node
				if slices.ContainsFunc(w.queues[node].Jobs, func(e Queued) bool { return e.Disturbs }) {
					hosts[i].Out = "a run"
				}
			}
			a := pace.NewAccount(w.budget, hosts)
			for _, node := range taken {
				a.Take(node)
			}
			return a
		}
	}
	c := Plan(s, slices.Collect(maps.Values(w.runs)), w.queues)
	w.record(s, c)
	for id, r := range c.Runs {
		a := w.runs[id]
		a.Run = r
		w.runs[id] = a
	}
	for id, nodes := range c.Rosters {
		a := w.runs[id]
		a.Roster = nodes
		w.runs[id] = a
	}
	for id, jobs := range c.Jobs {
		a := w.runs[id]
		a.Jobs = maps.Clone(a.Jobs)
		if a.Jobs == nil {
			a.Jobs = map[string]Job{}
		}
		a.Back = maps.Clone(a.Back)
		if a.Back == nil {
			a.Back = map[string]Job{}
		}
		for node, j := range jobs { // as a Decider reads them
			delete(a.Back, node)
			if a.Jobs[node] = j; j.Back {
				delete(a.Jobs, node)
				a.Back[node] = j
			}
		}
		w.runs[id] = a
	}
	for id, tails := range c.Tails {
		for node, tail := range tails {
			w.tails[id+" "+node] = tail
		}
	}
	for node, q := range c.Queues {
		for _, e := range q.Jobs {
			if w.queues[node].find(e.Job) < 0 {
				w.times[node+" "+e.Job]++
			}
		}
	}
	maps.Copy(w.queues, c.Queues)
	w.told = append(w.told, c.Decisions...)
	return c
}

// report is what a node writes.
func (w *world) report(node string, change func(*Queued)) bool {
	q := w.queues[node].clone()
	if len(q.Jobs) == 0 {
		return false
	}
	change(&q.Jobs[0])
	w.queues[node] = q
	return true
}

func (w *world) begin(nodes ...string) {
	for _, n := range nodes {
		w.report(n, func(e *Queued) { e.State, e.Started = Running, w.now })
	}
}

func (w *world) end(s State, nodes ...string) {
	for _, n := range nodes {
		w.report(n, func(e *Queued) { e.State, e.Ended, e.Tail = s, w.now, "tail" })
	}
}

func (w *world) agent(node string, up bool) {
	for i := range w.members {
		if w.members[i].Node == node {
			w.members[i].Agent = cluster.AgentDown
			if up {
				w.members[i].Agent = cluster.AgentUp
			}
		}
	}
	delete(w.down, node)
	if !up {
		w.down[node] = w.now
	}
}

// show is where everything stands: "r running: a=done b=pending | queue: b".
func (w *world) show(id string) string {
	a := w.runs[id]
	parts := []string{string(a.Run.State) + ":"}
	for _, n := range a.Roster {
		s := State("waiting")
		if j, ok := a.Jobs[n]; ok {
			s = j.State
		}
		parts = append(parts, n+"="+string(s))
	}
	var queued []string
	for _, n := range slices.Sorted(maps.Keys(w.queues)) {
		for _, e := range w.queues[n].Jobs {
			if e.Run == id {
				queued = append(queued, n)
			}
		}
	}
	if len(queued) > 0 {
		parts = append(parts, "| "+strings.Join(queued, " "))
	}
	return strings.Join(parts, " ")
}

func (w *world) want(t *testing.T, id, want string) {
	t.Helper()
	w.plan()
	if got := w.show(id); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c := w.plan(); len(c.Runs)+len(c.Rosters)+len(c.Jobs)+len(c.Queues)+len(c.Decisions) > 0 {
		t.Errorf("the same plan again changes %+v", c)
	}
}

func amount(t testing.TB, text string) pace.Amount {
	t.Helper()
	a, err := pace.PolicyAmount(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPlanRun(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c", "m/manager")
	w.ask("r", Request{Workflow: "w", Limits: Limits{MaxParallel: amount(t, "2")}})
	w.want(t, "r", "running: a=pending b=pending c=waiting | a b")
	w.begin("a", "b")
	w.want(t, "r", "running: a=running b=running c=waiting | a b")
	w.members = append(w.members, cluster.Member{Node: "d", Agent: cluster.AgentUp})
	w.end(Failed, "a")
	w.want(t, "r", "running: a=failed b=running c=pending | b c")
	w.begin("c")
	w.end(Done, "b", "c")
	w.want(t, "r", "failed: a=failed b=done c=done")
	r := w.runs["r"].Run
	if want := (Counts{Members: 3, Done: 2, Failed: 1}); r.Counts != want || r.Why != "1 of 3 members failed" || !r.Ended.Equal(epoch) {
		t.Errorf("got %+v", r)
	}
	if w.tails["r a"] != "tail" {
		t.Errorf("tails: %v", w.tails)
	}
	var history []string
	for _, c := range w.runs["r"].Jobs["c"].History {
		history = append(history, fmt.Sprintf("%s by %s", c.State, c.By))
	}
	if got, want := strings.Join(history, ", "), "pending by orchestrator on holder, running by c, done by c"; got != want {
		t.Errorf("history: got %s, want %s", got, want)
	}
}

func TestPlanWhoMatches(t *testing.T) {
	t.Parallel()
	own, err := cluster.ParseFilter(`Node != "c"`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		q    Request
		want string
	}{
		{"all", Request{}, "running: a=pending b=pending | a b"},
		{"role", Request{Role: "leader"}, "running: b=pending | b"},
		{"filter", Request{Filter: `Node == "a"`}, "running: a=pending | a"},
		{"both", Request{Filter: `Node == "a"`, Role: "leader"}, "failed:"},
		{"managers", Request{Role: "manager"}, "running: m=pending | m"},
		{"approval", Request{NeedsApproval: true}, "needs-approval:"},
		{"per cent", Request{Limits: Limits{MaxParallel: amount(t, "1%")}}, "running: a=pending b=waiting | a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld("a", "b/leader", "c", "m/manager")
			w.filter = own
			w.ask("r", test.q)
			w.want(t, "r", test.want)
		})
	}
}

func TestPlanSerialPerNode(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.ask("r1", Request{Workflow: "w", Limits: Limits{MaxParallel: amount(t, "1")}})
	w.ask("r2", Request{Workflow: "w"})
	w.ask("r3", Request{Workflow: "w", NeedsApproval: true})
	w.plan()
	w.want(t, "r2", "running: a=waiting b=waiting")
	w.begin("a")
	w.end(Done, "a")
	w.want(t, "r1", "running: a=done b=pending | b")
	w.want(t, "r2", "running: a=pending b=waiting | a")
	w.begin("b")
	w.end(Done, "b")
	w.want(t, "r1", "done: a=done b=done")
	w.want(t, "r2", "running: a=pending b=pending | a b")
}

func TestPlanPaused(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.ask("r", Request{Limits: Limits{MaxParallel: amount(t, "1")}})
	w.plan()
	w.begin("a")
	w.still = "paused"
	w.ask("later", Request{})
	w.end(Done, "a")
	w.want(t, "r", "running: a=done b=waiting")
	w.want(t, "later", "pending:")
	w.still = ""
	w.want(t, "r", "running: a=done b=pending | b")
}

func TestPlanCancel(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c")
	w.ask("r", Request{Limits: Limits{MaxParallel: amount(t, "2")}})
	w.plan()
	w.begin("a")
	w.change("r", func(r *Run) { r.Cancel = "ann" })
	w.want(t, "r", "running: a=running b=cancelled c=waiting | a")
	if got := w.runs["r"].Run.Why; !strings.HasPrefix(got, "cancelled by ann") {
		t.Errorf("that it was cancelled is not told while a member goes on: %q", got)
	}
	if e := w.queues["a"].Jobs[0]; e.Cancel != "ann" {
		t.Errorf("the node is not told: %+v", e)
	}
	w.end(Cancelled, "a")
	w.want(t, "r", "cancelled: a=cancelled b=cancelled c=waiting")
	if want := (Counts{Members: 3, Cancelled: 3}); w.runs["r"].Run.Counts != want {
		t.Errorf("counts: %+v", w.runs["r"].Run.Counts)
	}
}

// TestPlanRuleAfter: a rule is not done before what it comes after is; where
// that failed no run waits for it.
func TestPlanRuleAfter(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.ask("base", Request{Workflow: "w"})
	w.ask("mid", Request{Workflow: "x"})
	w.ask("last", Request{Workflow: "y"})
	w.change("base", func(r *Run) { r.Rule = &Standing{Name: "base"} })
	w.change("mid", func(r *Run) { r.Rule = &Standing{Name: "mid", After: "base"} })
	w.change("last", func(r *Run) { r.Rule = &Standing{Name: "last", After: "x"} })
	w.want(t, "last", "running: a=waiting b=waiting")
	w.want(t, "mid", "running: a=waiting b=waiting")
	w.begin("a", "b")
	w.end(Done, "a")
	w.end(Failed, "b")
	w.want(t, "base", "failed: a=done b=failed")
	w.want(t, "mid", "running: a=pending b=waiting | a")
	w.want(t, "last", "running: a=waiting b=waiting")
	w.begin("a")
	w.end(Done, "a")
	w.want(t, "mid", "done: a=done b=waiting")
	w.begin("a")
	w.end(Done, "a")
	w.want(t, "last", "done: a=done b=waiting")
	if got := w.runs["last"].Run.History; len(got) != 2 {
		t.Errorf("it began and ended once: %+v", got)
	}
}

// TestPlanLost: what had begun is taken when the member is back, the rest
// no longer starts.
func TestPlanLost(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b", "c", "d")
	w.ask("r", Request{Limits: Limits{MaxParallel: amount(t, "3")}})
	w.agent("c", false)
	w.plan()
	w.begin("a")
	w.agent("a", false)
	w.agent("b", false)
	w.now = w.now.Add(30 * time.Second)
	w.want(t, "r", "running: a=running b=pending c=waiting d=pending | a b d")
	w.begin("d")
	w.end(Done, "d")
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "failed: a=lost b=lost c=lost d=done | a")
	w.ask("next", Request{Filter: `Node == "a"`})
	w.agent("a", true)
	w.agent("b", true)
	w.want(t, "r", "running: a=running b=lost c=lost d=done | a")
	w.want(t, "next", "running: a=waiting")
	w.agent("a", false)
	w.now = w.now.Add(time.Hour)
	w.plan()
	w.end(Done, "a")
	w.want(t, "r", "failed: a=done b=lost c=lost d=done")
	if got := w.runs["r"].Run.Why; got != "2 of 4 members were lost" {
		t.Errorf("why: %q", got)
	}
}

// TestPlanLostForGood: what is not back after a month is waited for no more.
func TestPlanLostForGood(t *testing.T) {
	t.Parallel()
	w := newWorld("a")
	w.ask("r", Request{})
	w.plan()
	w.begin("a")
	w.agent("a", false)
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "failed: a=lost | a")
	w.now = w.now.Add(keepFor)
	w.want(t, "r", "failed: a=lost")
}

// TestPlanOnManager: it runs once, on a manager, one that defines the workflow before
// others, or where the orchestrator is, and continues elsewhere at the first task that
// is not done.
func TestPlanOnManager(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "m1/manager", "m2/manager")
	w.ask("r", Request{Workflow: "w", OnManager: true})
	w.want(t, "r", "running: m1=pending | m1")
	w.begin("m1")
	w.report("m1", func(e *Queued) { e.Done = []string{"one"} })
	w.want(t, "r", "running: m1=running | m1")
	w.agent("m1", false)
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "running: m1=lost m2=pending | m2")
	e := w.queues["m2"].Jobs[0]
	if !e.Manager || e.Job != "run-r.2" || !slices.Equal(e.Done, []string{"one"}) {
		t.Errorf("what goes on: %+v", e)
	}
	w.agent("m1", true)
	w.begin("m2")
	w.report("m2", func(e *Queued) { e.Done = []string{"one", "two"} })
	w.agent("m2", false)
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "running: m1=pending m2=lost | m1")
	if e := w.queues["m1"].Jobs[0]; e.Job != "run-r.3" || !slices.Equal(e.Done, []string{"one", "two"}) {
		t.Errorf("what goes on: %+v", e)
	}
	w.begin("m1")
	w.end(Done, "m1")
	w.want(t, "r", "done: m1=done m2=lost")

	cut := newWorld("a", "m1/manager", "m2/manager")
	cut.ask("r", Request{Workflow: "w", OnManager: true, RetryOf: "q", Done: []string{"zero"}})
	cut.want(t, "r", "running: m1=pending | m1")
	if e := cut.queues["m1"].Jobs[0]; !slices.Equal(e.Done, []string{"zero"}) {
		t.Errorf("what a retry leaves out: %+v", e)
	}
	cut.begin("m1")
	cut.report("m1", func(e *Queued) { e.Done, e.Once = []string{"zero", "one"}, "two" })
	cut.want(t, "r", "running: m1=running | m1")
	cut.agent("m1", false)
	cut.now = cut.now.Add(time.Minute)
	cut.want(t, "r", "failed: m1=failed")
	if j := cut.runs["r"].Jobs["m1"]; j.Once != "two" || !slices.Equal(j.Done, []string{"zero", "one"}) {
		t.Errorf("what is left: %+v", j)
	}

	able := newWorld("a", "m1/manager", "m2/manager")
	able.members[1].Workflows, able.members[2].Workflows = []string{"other"}, []string{"w"}
	able.ask("r", Request{Workflow: "w", OnManager: true})
	able.want(t, "r", "running: m2=pending | m2")
	able.agent("m2", false) // the other does not define it, and says so itself
	able.now = able.now.Add(time.Minute)
	able.want(t, "r", "running: m2=lost m1=pending | m1")

	none := newWorld("a")
	none.ask("r", Request{Workflow: "w", OnManager: true})
	none.want(t, "r", "running: holder=pending | holder")

	for _, up := range []bool{true, false} { // its members were written, its queue was not
		half := newWorld("a", "m1/manager", "m2/manager")
		half.ask("r", Request{Workflow: "w", OnManager: true})
		begun := half.runs["r"]
		begun.Run.State, begun.Run.Started, begun.Roster = Running, half.now, []string{"m1"}
		half.runs["r"] = begun
		half.agent("m1", up)
		half.want(t, "r", map[bool]string{true: "running: m1=pending | m1", false: "running: m2=pending | m2"}[up])
	}
}

// TestPlanStrangers: what no run knows of goes out of the queues.
func TestPlanStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld("a")
	w.queues["a"] = Queue{Jobs: []Queued{{Run: "gone", Result: Result{Job: "run-gone", State: Running}}}}
	w.ask("r", Request{})
	w.want(t, "r", "running: a=pending | a")
}

// TestPlanAnything: whatever happens, no more run at the same time than may, no job
// is handed out twice, a node has one at a time in the order of creation, and
// all runs end.
func TestPlanAnything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			anything(t, rand.New(rand.NewPCG(seed, 1)), nil)
		})
	}
}

// anything goes through one history, and records its plans unless r is nil: then runs have all
// kinds of limits.
func anything(t *testing.T, random *rand.Rand, r *recorded.Recorder) {
	nodes := []string{"a", "b", "c", "d", "e", "f"}
	w := newWorld(append(slices.Clone(nodes), "m/manager")...)
	w.t, w.recorder = t, r
	if r != nil {
		nodes = append(nodes, "m", "holder") // for runs on managers
	}
	limits := map[string]int{}
	for step := range 200 {
		w.now = w.now.Add(time.Duration(random.IntN(20)) * time.Second)
		switch n := nodes[random.IntN(len(nodes))]; random.IntN(9) {
		case 0:
			if id := fmt.Sprintf("r%02d", len(w.runs)); step < 120 && len(w.runs) < 8 {
				limits[id] = 1 + random.IntN(7)
				q := Request{Workflow: "w", Limits: Limits{MaxParallel: pace.Amount{N: limits[id]}}}
				if r != nil {
					q = randomRequest(random, limits[id])
				}
				w.ask(id, q)
			}
		case 1, 2, 3:
			w.report(n, func(e *Queued) {
				if e.State == Pending {
					e.State, e.Started = Running, w.now
				}
			})
		case 4, 5:
			w.report(n, func(e *Queued) {
				if e.State == Running {
					e.State, e.Ended = []State{Done, Failed}[random.IntN(2)], w.now
				}
			})
		case 6:
			w.agent(n, random.IntN(3) > 0)
		case 7:
			w.still = []string{"", "", "paused"}[random.IntN(3)]
		case 8:
			if id := fmt.Sprintf("r%02d", random.IntN(12)); w.runs[id].Run.State == Running {
				w.change(id, func(r *Run) { r.Cancel = "x" })
			}
		}
		w.plan()
		if r == nil { // with steps a younger run may be first on a member that a step has not reached
			w.hold(t, limits)
		}
	}
	w.still = ""
	for range 40 * len(w.runs) {
		if r != nil {
			w.now = w.now.Add(time.Minute) // members have to be healthy for some time
		}
		for _, n := range nodes {
			w.agent(n, true)
			w.report(n, func(e *Queued) {
				if e.State == Pending {
					e.State, e.Started = Running, w.now
				}
				e.State, e.Ended = Done, w.now
			})
		}
		w.plan()
	}
	for id, a := range w.runs {
		if !a.Run.State.Ended() {
			t.Errorf("it never ends: %s %s", id, w.show(id))
		}
	}
}

func (w *world) hold(t *testing.T, limits map[string]int) {
	t.Helper()
	flying := map[string]int{}
	for node, q := range w.queues {
		if len(q.Jobs) > 1 {
			t.Fatalf("%s has %d jobs at one time", node, len(q.Jobs))
		}
		for _, e := range q.Jobs {
			wasLost := func(c Change) bool { return c.State == Lost } // no run asks which member comes back
			if !slices.ContainsFunc(w.runs[e.Run].Jobs[node].History, wasLost) {
				flying[e.Run]++
			}
			for id, a := range w.runs {
				_, has := a.Jobs[node]
				older := a.Run.Created.Before(w.runs[e.Run].Run.Created)
				if older && slices.Contains(a.Roster, node) && !has && a.Run.Cancel == "" && !a.Run.State.Ended() {
					t.Fatalf("%s runs %s before %s", node, e.Run, id)
				}
			}
		}
	}
	for id, n := range flying {
		if n > limits[id] {
			t.Fatalf("%s runs on %d members, at most %d may", id, n, limits[id])
		}
	}
	for job, n := range w.times {
		if n > 1 {
			t.Fatalf("%s was handed out %d times", job, n)
		}
	}
}

// BenchmarkPlan plans a run on 1,000 members, all of which have news.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var names []string
			for i := range n {
				names = append(names, fmt.Sprintf("node-%05d", i))
			}
			w := newWorld(names...)
			w.ask("r", Request{Workflow: "w"})
			w.plan()
			w.begin(names...)
			w.plan()
			w.end(Done, names...)
			runs := slices.Collect(maps.Values(w.runs))
			s := Situation{Now: w.now, Members: w.members, Holder: "h", Grace: time.Minute}
			b.ResetTimer()
			for b.Loop() {
				if c := Plan(s, runs, w.queues); len(c.Queues) != n {
					b.Fatal(len(c.Queues))
				}
			}
		})
	}
}

// BenchmarkPlanWaiting plans a run of which a tenth of 5,000 members may execute at the same time, while they do; the others wait.
func BenchmarkPlanWaiting(b *testing.B) {
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("node-%05d", i)
	}
	w := newWorld(names...)
	w.ask("r", Request{Workflow: "w", Limits: Limits{MaxParallel: pace.Amount{N: 10, Percent: true}}})
	w.plan()
	runs := slices.Collect(maps.Values(w.runs))
	s := Situation{Now: w.now, Members: w.members, Holder: "h", Grace: time.Minute}
	for b.Loop() {
		if c := Plan(s, runs, w.queues); len(c.Queues) != 0 {
			b.Fatal(len(c.Queues))
		}
	}
}

// TestPlanRebooting: a host that reboots for its job may be away for ten minutes; for any other it is lost
// after the grace.
func TestPlanRebooting(t *testing.T) {
	t.Parallel()
	w := newWorld("a", "b")
	w.ask("r", Request{})
	w.plan()
	w.begin("a", "b")
	q := w.queues["a"]
	q.Jobs[0].Rebooting = true
	w.agent("a", false)
	w.agent("b", false)
	w.now = w.now.Add(9 * time.Minute)
	w.want(t, "r", "running: a=running b=lost | a b")
	w.now = w.now.Add(time.Minute)
	w.want(t, "r", "failed: a=lost b=lost | a b")
}
