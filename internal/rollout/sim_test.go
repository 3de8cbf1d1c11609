package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// simNode is a host that obeys its grants.
type simNode struct {
	Member
	gone bool // it left the cluster
	// record is the grant that the host's own disk tells of.
	record string
	// group is where it was offered its grant; stumbled: it failed, or was held, since it began.
	group    pace.Group
	stumbled bool
	drained  bool // by an operator
}

// simFleet is a cluster in memory: what is in KV, and the hosts.
type simFleet struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	nodes   map[string]*simNode
	joined  int
	desired string

	doc       Document
	book      Book
	docIndex  uint64        // of both
	specIndex uint64        // of what hosts check
	ledger    change.Ledger // swapped by every offering transaction
	session   int           // of the orchestrator's lock
	// cycles are the open ones: another orchestrator may be faster. passes are
	// transactions that were sent and may be carried out late.
	cycles  []seen
	passes  []seen
	steps   []string
	healthy bool // nothing fails, and no host dies
	holds   bool // operators hold hosts, drain them, and end that
	allHeld bool // the whole cluster

	// runs are the runs of gates, by id, and gates what the present rollout
	// passed, by the number of the step: as the test sees it.
	runs  map[string]*simRun
	gates map[int]*simGate
}

// simRun is a run of a gate.
type simRun struct {
	step   int
	answer pace.GateAnswer
}

// simGate is what happened after a step was done.
type simGate struct {
	broken   time.Time // when a member was last at work in it, or had a critical check while it baked
	approved bool
	policy   pace.Policy // of the gate, as it last was
}

// seen is what an orchestrator read, and what it made of that.
type seen struct {
	state    State
	doc      Document
	docIndex uint64
	ledger   change.Ledger
	session  int
	plan     Planned
}

func newFleet(t *testing.T, random *rand.Rand, n int) *simFleet {
	f := &simFleet{t: t, random: random, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), nodes: map[string]*simNode{}, runs: map[string]*simRun{}, gates: map[int]*simGate{}}
	for range n {
		f.join()
	}
	return f
}

func (f *simFleet) join() {
	f.joined++
	name := fmt.Sprintf("n%02d", f.joined)
	f.nodes[name] = &simNode{Member: Member{
		Node: name, Version: "v0", Zone: f.zone(), Roles: []string{[]string{"db", "web", "cache"}[f.random.IntN(3)], "worker"},
	}}
	f.nodes[name].set(true, false)
}

// set says whether the host is up, and whether a check of it is critical.
func (n *simNode) set(up, critical bool) {
	s := cluster.Signals{
		Cataloged: true, Gossip: cluster.SignalPassing, Agent: cluster.SignalPassing, Maintenance: cluster.MaintenanceNone, Checks: "passing",
	}
	if !up {
		s.Agent = cluster.SignalFailing
	}
	if critical {
		s.Checks = "critical"
	}
	if n.drained {
		s.Maintenance = cluster.MaintenanceForeign
	}
	n.Condition = cluster.Assess(s)
}

func (f *simFleet) zone() string { return []string{"a", "b", "c"}[f.random.IntN(3)] }

func (f *simFleet) fail(format string, args ...any) {
	f.t.Helper()
	f.t.Fatalf("%s\nlast steps:\n%s\ndocument: %+v", fmt.Sprintf(format, args...), strings.Join(f.steps[max(0, len(f.steps)-30):], "\n"), f.doc)
}

func (f *simFleet) note(format string, args ...any) {
	f.steps = append(f.steps, fmt.Sprintf(format, args...))
}

// state is what the whole cluster says now.
func (f *simFleet) state() State {
	s := State{Gate: f.gateRun(), AllHeld: f.allHeld}
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if n := f.nodes[name]; !n.gone {
			m := n.Member
			m.Void = !f.valid(n)
			if f.allHeld && m.Hold == "" {
				m.Hold = "the cluster"
			}
			s.Members = append(s.Members, m)
		}
	}
	return s
}

// valid reports whether the host could accept its offer, by what is stored.
func (f *simFleet) valid(n *simNode) bool {
	g := n.Grant
	return g.State == pace.Offered && g.Spec == f.specIndex && g.Session == fmt.Sprint(f.session) && g.Tag == f.desired
}

func (f *simFleet) open() (n int) {
	for _, node := range f.nodes {
		m := node.Member
		if m.Void = !f.valid(node); m.granted() && !node.gone {
			n++
		}
	}
	return n
}

// operate replaces what the rollout is asked for, as an operator does. What follows from it is
// seen at once.
func (f *simFleet) operate(next Document) {
	f.t.Helper()
	first := text.SameJSON(f.book, f.doc.Book()) // since the orchestrator wrote last
	if !text.SameJSON(next.Spec, f.doc.Spec) {
		f.specIndex++
	}
	f.docIndex++
	f.doc, f.desired = join(next.Spec, f.book), next.Version
	if first && !f.doc.equal(next) {
		f.fail("an operator wrote\n%+v\nand all see\n%+v", next, f.doc)
	}
}

// write replaces the rollout, as an orchestrator does.
func (f *simFleet) write(next Document) {
	f.t.Helper()
	f.book = next.Book()
	f.operate(next)
	if !f.doc.equal(next) {
		f.fail("an orchestrator wrote\n%+v\nand all see\n%+v", next, f.doc)
	}
}

// trigger begins a rollout.
func (f *simFleet) trigger(version string, p pace.Policy) {
	f.note("trigger %s %+v", version, p)
	f.gates = map[int]*simGate{}
	f.operate(begin(version, p, "", f.doc.Previous, f.now))
}

// take over: another agent holds the lock, and renews the ledger.
func (f *simFleet) takeOver() {
	f.session++
	f.ledger = change.Ledger{Term: f.ledger.Term + 1}
	f.note("session %d takes over", f.session)
}

func (f *simFleet) look() seen {
	return seen{state: f.state(), doc: f.doc, docIndex: f.docIndex, ledger: f.ledger, session: f.session}
}

// observe is the first half of a cycle.
func (f *simFleet) observe() { f.cycles = append(f.cycles, f.look()) }

// act is the second half: it is carried out only if the document stayed.
func (f *simFleet) act() {
	if len(f.cycles) == 0 {
		return
	}
	i := f.random.IntN(len(f.cycles))
	c := f.cycles[i]
	f.cycles = slices.Delete(f.cycles, i, i+1)
	c.plan = Plan(c.doc, c.state, f.now)
	f.check(c)
	if c.docIndex != f.docIndex {
		return
	}
	f.checkGate(c)
	if c.plan.Document.equal(f.doc) {
		return
	}
	for _, d := range c.plan.Decisions {
		f.note("decision: %s: %s (%s) %v", d.Kind, d.Text, d.Reason, d.Nodes)
	}
	f.write(c.plan.Document)
	for _, node := range failures(f.doc, c.state, f.now) {
		f.nodes[node].stumbled = true
	}
}

// failures are the members that count as failed, members that take no part included.
func failures(d Document, s State, now time.Time) (nodes []string) {
	situation, change := s.situation(now), d.change(&s)
	for i := range change.Wants {
		change.Wants[i].Apart = ""
	}
	for _, m := range pace.NewSurvey(situation, change, now).In(pace.Failed) {
		nodes = append(nodes, m.Node)
	}
	return nodes
}

// send plans grants; what comes of it may be carried out later, or never.
func (f *simFleet) send() {
	s := f.look()
	s.plan = Plan(s.doc, s.state, f.now)
	f.check(s)
	if len(s.plan.Offers)+len(s.plan.Withdrawals) > 0 {
		f.passes = append(f.passes, s)
	}
	if len(f.passes) > 0 && f.random.IntN(3) > 0 {
		f.commit()
	}
}

// commit carries out one of the transactions that were sent, if what it depends
// on still is so.
func (f *simFleet) commit() {
	i := f.random.IntN(len(f.passes))
	s := f.passes[i]
	f.passes = slices.Delete(f.passes, i, i+1)
	if s.docIndex != f.docIndex || s.ledger != f.ledger || s.session != f.session {
		return
	}
	for _, m := range s.state.Members { // each grant is a compare-and-swap
		if slices.ContainsFunc(s.plan.Offers, func(o pace.Offer) bool { return o.Node == m.Node }) && f.nodes[m.Node].Grant != m.Grant {
			return
		}
	}
	f.ledger = f.ledger.Next()
	for _, node := range s.plan.Withdrawals {
		n := f.nodes[node]
		n.Grant = n.Grant.Withdrawn(f.now)
		f.note("withdrawn from %s", node)
	}
	f.allowed(s)
	for _, o := range s.plan.Offers {
		n := f.nodes[o.Node]
		n.group = f.doc.Policy.KeyOf(f.doc.Version, n.Node, n.Roles, n.Zone).Group // it may move before it answers
		n.Grant = change.Grant{
			ID: fmt.Sprintf("%s.%s", f.ledger.ID(fmt.Sprint(f.session)), o.Node), Tag: f.desired, State: pace.Offered, Since: f.now,
			Session: fmt.Sprint(f.session), Spec: f.specIndex, Tries: o.Tries,
		}
		f.note("offered to %s", o.Node)
	}
}

// allowed holds offers to the policy, by what they were made of and by the
// grants that are open when they are carried out.
func (f *simFleet) allowed(s seen) {
	f.t.Helper()
	p := newPlanner(s.doc, s.state, f.now)
	limit, out := p.Room()
	count, open := len(out), 0
	for _, m := range out {
		if m.Part.Granted() {
			open++
		}
	}
	added := 0
	for _, o := range s.plan.Offers {
		m := s.state.Members[slices.IndexFunc(s.state.Members, func(m Member) bool { return m.Node == o.Node })]
		if why := m.apart(f.doc.Policy); why != "" {
			f.fail("%s is offered a grant: %s", m.Node, why)
		}
		if why := m.aside(); why != "" {
			f.fail("%s is offered a grant: %s", m.Node, why)
		}
		f.withinStep(s, m)
		if !m.granted() {
			open++
			added++
			if m.out() == pace.InService {
				count++
			}
		}
	}
	switch {
	case added > 0 && open > limit:
		f.fail("%d grants are open of %d that may be", open, limit)
	case added > 0 && count > max(limit, len(out)):
		f.fail("%d are out of service of %d that may be", count, limit)
	case f.open()+added > open:
		f.fail("%d grants are open, and the plan knew of %d", f.open()+added, open)
	}
}

// check holds a plan to what it promises, whether it is carried out or not.
func (f *simFleet) check(c seen) {
	f.t.Helper()
	next := c.plan.Document
	if again := Plan(next, c.state, f.now); !again.Document.equal(next) || len(again.Decisions) > 0 {
		f.fail("planning again changes something: %v\n%+v\n%+v", again.Decisions, next, again.Document)
	}
	if !next.equal(c.doc) && len(c.plan.Offers)+len(c.plan.Withdrawals) > 0 {
		f.fail("grants for a document that changes")
	}
	p := newPlanner(c.doc, c.state, f.now)
	f.checkHeld(c, p)
	allowed := c.doc.Policy.MaxFailures + c.doc.Forgiven
	failures := newPlanner(c.doc, c.state, c.doc.Started).counts.Failed
	if c.doc.Paced() && !c.doc.Forgive && failures > allowed && !next.Over() && next.Stopped == nil && next.Version == c.doc.Version {
		f.fail("%d failed of %d that may, and it continues", failures, allowed)
	}
	if next.Stopped != nil && !next.Over() && len(c.plan.Offers) > 0 {
		f.fail("offers while the rollout is paused")
	}
	if next.Group == nil || c.doc.Group != nil && *c.doc.Group == *next.Group || next.Phase != c.doc.Phase || next.Batch != c.doc.Batch {
		return
	}
	for _, m := range p.members { // another group begins
		if m.in.State == pace.Working {
			f.fail("%s is still at work", m.Node)
		}
	}
}

// checkHeld holds a plan to what hosts that are held or drained may not do: make a step,
// or let the rollout end by themselves.
func (f *simFleet) checkHeld(c seen, p *planner) {
	f.t.Helper()
	next := c.plan.Document
	if next.Version != c.doc.Version || !next.Started.Equal(c.doc.Started) {
		return
	}
	after := newPlanner(next, c.state, f.now)
	if next.Steps > c.doc.Steps && len(after.admitted(func(m ranked) bool { return m.in.State == pace.Pending })) == 0 {
		f.fail("a step begins without a host that can begin")
	}
	if next.Phase != pace.Done || c.doc.Phase == pace.Done || p.counts.Held == 0 {
		return
	}
	if c.state.AllHeld {
		f.fail("the rollout ends while the cluster is held")
	}
	if c.doc.Phase != pace.RollingBack && c.doc.Paced() && p.counts.Reached() <= c.doc.Counts.Reached() {
		f.fail("the rollout ends with a step of which every host is held: %+v", p.counts)
	}
}

// aside says why the host does not begin: operators hold it, or have drained it.
func (f *simFleet) aside(n *simNode) bool { return n.aside() != "" || f.allHeld }

// try is one attempt of a host to begin.
func (f *simFleet) try(n *simNode) {
	switch {
	case n.gone || !n.Up() || n.Version == f.desired && !n.Answer.Open():
	case !f.doc.Paced():
		if f.doc.Stopped == nil && f.doc.Phase != pace.Aborted && !f.aside(n) {
			n.Version, n.Arrived, n.Answer = f.desired, f.now, cluster.Answer{}
			n.set(true, false)
		}
	case n.Answer.Open() && n.record != n.Answer.ID:
		n.Answer.State, n.record = cluster.GrantFailed, n.Answer.ID
		f.note("%s does not know its grant", n.Node)
	case n.Answer.Open() && n.Answer.Tag != f.desired && n.Answer.State != cluster.GrantStranded && !n.givenUp():
		n.Answer.State = cluster.GrantStranded
		f.note("%s is stranded", n.Node)
	case f.aside(n): // it finishes what it accepted when that ends
	case f.valid(n) && !n.Grant.Answered(n.Answer):
		f.answer(n)
	case n.Answer.Declined != "" && n.Answer.Declined == n.Grant.ID:
		n.Answer.Ready = true
	}
}

// answer accepts an offer, or declines it.
func (f *simFleet) answer(n *simNode) {
	if !f.healthy && f.random.IntN(8) == 0 {
		n.Answer.Declined, n.Answer.Ready, n.Answer.Reason = n.Grant.ID, false, "something is missing"
		f.note("%s declines", n.Node)
		return
	}
	if f.doc.Stopped != nil || f.doc.Phase == pace.Aborted {
		f.fail("%s begins in a rollout that is stopped", n.Node)
	}
	if why := n.apart(f.doc.Policy); why != "" {
		f.fail("%s begins: %s", n.Node, why)
	}
	if (f.doc.Policy.ZoneByZone || len(f.doc.Policy.Order) > 0) && f.doc.Phase != pace.Done {
		for _, o := range f.nodes {
			atWork := o.Answer.Open() && !o.givenUp() && o.Answer.State != cluster.GrantStranded && o.Answer.Tag == f.desired
			if o != n && atWork && !o.stumbled && o.Up() && !o.gone && !slices.Contains(failures(f.doc, State{Members: []Member{o.Member}}, f.now), o.Node) && o.group != n.group {
				f.fail("%s begins in %+v while %s is out of service in %+v", n.Node, n.group, o.Node, o.group)
			}
		}
	}
	n.Answer = cluster.Answer{Change: cluster.VersionChange, ID: n.Grant.ID, Tag: n.Grant.Tag, State: cluster.GrantAccepted, Since: f.now}
	n.record, n.stumbled = n.Grant.ID, false
	f.note("%s begins", n.Node)
}

// work is what a host that has a grant does next.
func (f *simFleet) work(n *simNode) {
	working := n.Answer.Open() && n.Answer.State != cluster.GrantStranded && n.record == n.Answer.ID
	if !working || !n.Up() || n.gone || f.aside(n) || n.Answer.Tag != f.desired {
		return
	}
	switch {
	case !f.healthy && n.Config.State != cluster.StateFailed && f.random.IntN(25) == 0:
		n.Config = cluster.CategoryState{State: cluster.StateFailed, Version: f.desired, Since: f.now, Detail: "broken"}
		f.note("%s fails", n.Node)
	case f.random.IntN(3) == 0:
		n.Config = cluster.CategoryState{State: cluster.StateSuccess, Version: f.desired, Since: f.now}
		n.Version, n.Arrived, n.Answer.State, n.record = f.desired, f.now, cluster.GrantDone, ""
		n.set(true, false)
		f.note("%s arrived", n.Node)
	}
}
