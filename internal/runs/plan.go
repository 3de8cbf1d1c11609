package runs

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// Situation is what a plan depends on beside runs and queues.
type Situation struct {
	Now     time.Time
	Members []cluster.Member // all, with roles and agents
	Filter  *cluster.Filter  // the cluster's own; nil: every member
	Holder  string           // the node whose orchestrator plans; its agent is up
	Still   string           // why nothing new may begin; empty: it may
	// Down says since when agents have been down without a break.
	Down map[string]time.Time
	// Out says when members were last seen out of service.
	Out map[string]time.Time
	// Barred is why nothing that disturbs may begin on a node; empty: it may. nil: always.
	Barred  func(node string) string
	Freezes pace.Freezes // of the cluster
	Quiet   time.Time    // until when nothing begins, as Consul's KV was restored
	// Left returns what the budget of the cluster leaves for a run beside nodes that the plan takes out of
	// service; nil: the cluster has no budget.
	Left func(d pace.Demand, taken []string) *pace.Account
	// Unread are runs that there are, but that this plan is not about.
	Unread map[string]bool
	// Closed are nodes whose queues can neither be read nor written.
	Closed map[string]bool
	// Grace is how long an agent may be down before what it was to do is lost.
	Grace time.Duration
}

// Active is a run in progress, with all that is known of it.
type Active struct {
	Run    Run
	Roster []string       // nil: not yet decided
	Jobs   map[string]Job // by node; members without one wait
	Back   map[string]Job // jobs that were taken back, by node
}

// decided is something that was decided, or found, of a run; without one it is about rules or about all runs.
type decided struct {
	event.Decision
	nodes []string // members that are given something to do
}

// decide returns a decision about a run; empty: about none.
func decide(kind, run, node, text string) event.Decision {
	d := event.Decision{Kind: kind, Node: node, Text: text, After: run}
	if run != "" {
		d.Change = cluster.RunChange(run)
	}
	return d
}

// run is that of the decision; empty: it is about none.
func (d decided) run() string { return d.After }

// Changes is the result of a plan: only what differs from what is stored.
type Changes struct {
	Runs      map[string]Run
	Rosters   map[string][]string
	Jobs      map[string]map[string]Job    // run → node → job
	Tails     map[string]map[string]string // run → node → what its last task printed
	Queues    map[string]Queue             // by node
	Decisions []decided
	// Denied are the runs that only the budget keeps from beginning on members.
	Denied []pace.Demand
	// Again is when time alone settles a member or opens a window; zero: it does not.
	Again time.Time
}

// Plan decides about runs and the queues of nodes. It is pure and leaves its
// arguments unchanged. A job is put into a queue at most once, except one on a
// manager, which other managers take over.
func Plan(s Situation, runs []Active, queues map[string]Queue) Changes {
	p := newPlanner(s, runs, queues)
	for _, a := range p.runs {
		p.collect(a)
	}
	p.dropUnknown()
	for _, a := range p.runs {
		p.begin(a)
		if a.Run.Request.OnManager {
			p.onManager(a)
		} else {
			p.schedule(a)
		}
	}
	for _, a := range p.runs {
		p.settle(a)
	}
	return p.changes(runs)
}

// planner is a plan in the making, on copies.
type planner struct {
	s       Situation
	members map[string]*cluster.Member
	runs    []*Active // in the order of their creation
	queues  map[string]Queue
	claimed map[string]string            // nodes on which an older run still has something to do, with that run
	waits   map[string]map[string]string // run → node, or empty → why nothing starts there
	taken   []string                     // nodes that this plan takes out of service
	freed   map[string]bool              // nodes that Left counts as out for a job that this plan takes out of their queues
	out     Changes
}

func newPlanner(s Situation, runs []Active, queues map[string]Queue) *planner {
	p := &planner{
		s: s, members: map[string]*cluster.Member{}, queues: maps.Clone(queues), claimed: map[string]string{}, freed: map[string]bool{}, waits: map[string]map[string]string{},
		out: Changes{Runs: map[string]Run{}, Rosters: map[string][]string{}, Jobs: map[string]map[string]Job{}, Tails: map[string]map[string]string{}, Queues: map[string]Queue{}},
	}
	if p.queues == nil {
		p.queues = map[string]Queue{}
	}
	for i := range s.Members {
		p.members[s.Members[i].Node] = &s.Members[i]
	}
	for _, a := range runs {
		a.Roster, a.Jobs, a.Back = slices.Clone(a.Roster), maps.Clone(a.Jobs), maps.Clone(a.Back)
		if a.Jobs == nil {
			a.Jobs = map[string]Job{}
		}
		p.runs = append(p.runs, &a)
	}
	slices.SortFunc(p.runs, func(a, b *Active) int {
		if c := a.Run.Created.Compare(b.Run.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Run.ID, b.Run.ID)
	})
	return p
}

// up reports whether a node's agent is up.
func (p *planner) up(node string) bool {
	m := p.members[node]
	return node == p.s.Holder || m != nil && m.Agent == cluster.AgentUp
}

// withoutHost reports whether a member is a logical one, on which nothing can run.
func (p *planner) withoutHost(node string) bool {
	m := p.members[node]
	return m != nil && !p.up(node) && m.Condition.Liveness == cluster.LivenessAbsent
}

// rebootGrace is how long an agent may be down while its host reboots for a job.
const rebootGrace = 10 * time.Minute

// gone reports whether a node's agent has been down for too long. The plan is due again when it is.
func (p *planner) gone(node string) bool {
	since, known := p.s.Down[node]
	grace := p.s.Grace
	if slices.ContainsFunc(p.queues[node].Jobs, func(e Queued) bool { return e.Rebooting }) {
		grace = max(grace, rebootGrace)
	}
	if p.up(node) || !known {
		return false
	}
	if left := since.Add(grace); p.s.Now.Before(left) {
		p.again(left)
		return false
	}
	return true
}

func (p *planner) origin() string { return "orchestrator on " + p.s.Holder }

// put sets the document of a job, with a transition if its state is new.
func (p *planner) put(a *Active, node string, j Job, at time.Time, by, text string) {
	if old, ok := a.Jobs[node]; !ok || old.State != j.State || old.Attempt != j.Attempt {
		j.History = noted(j.History, Change{At: at, State: j.State, By: by, Text: text})
	}
	a.Jobs[node] = j
	set(p.out.Jobs, a.Run.ID, node, j)
}

func (p *planner) putQueue(node string, q Queue) {
	p.queues[node] = q
	p.out.Queues[node] = q
}

func (p *planner) decide(kind, run, node, text string) {
	p.out.Decisions = append(p.out.Decisions, decided{Decision: decide(kind, run, node, text)})
}

func set[T any](m map[string]map[string]T, a, b string, v T) {
	if m[a] == nil {
		m[a] = map[string]T{}
	}
	m[a][b] = v
}

// remove takes a job out of a node's queue.
func (p *planner) remove(node, job string) {
	q := p.queues[node].clone()
	q.Jobs = slices.DeleteFunc(q.Jobs, func(e Queued) bool {
		if e.Job == job && e.Disturbs {
			p.freed[node] = true
		}
		return e.Job == job
	})
	p.putQueue(node, q)
}

// changes leaves out what is as it was before.
func (p *planner) changes(before []Active) Changes {
	old := map[string]Active{}
	for _, a := range before {
		old[a.Run.ID] = a
	}
	for _, a := range p.runs {
		was := old[a.Run.ID]
		if !text.SameJSON(was.Run, a.Run) {
			p.out.Runs[a.Run.ID] = a.Run
		}
		if !slices.Equal(was.Roster, a.Roster) {
			p.out.Rosters[a.Run.ID] = a.Roster
		}
	}
	return p.out
}
