package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jorc/jorc/internal/nodes"
)

// simNode is a node that obeys the rule and the slots.
type simNode struct {
	Member
	gone bool // it left the cluster
	// group is where it began; stumbled: it failed since.
	group    Key
	stumbled bool
}

// fleet is a cluster in memory: what is in KV, and the nodes.
type fleet struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	nodes   map[string]*simNode
	joined  int
	desired string

	doc      Document
	docIndex int
	max      int // of the slot group
	index    int // of the slot group: every claim changes it
	// seen is the view of the plan that was carried out last.
	seen View
	// cycles are those under way: another orchestrator may be faster.
	cycles  []cycle
	steps   []string
	healthy bool // nothing fails, and nobody dies
}

type cycle struct {
	view            View
	doc             Document
	docIndex, index int
}

func newFleet(t *testing.T, random *rand.Rand, n int) *fleet {
	f := &fleet{t: t, random: random, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), nodes: map[string]*simNode{}, max: 1}
	for range n {
		f.join()
	}
	return f
}

func (f *fleet) join() {
	f.joined++
	name := fmt.Sprintf("n%02d", f.joined)
	f.nodes[name] = &simNode{Member: Member{
		Node: name, Up: true, Version: "v0", Zone: f.zone(), Roles: []string{[]string{"db", "web", "cache"}[f.random.IntN(3)], "worker"},
	}}
}

func (f *fleet) zone() string { return []string{"a", "b", "c"}[f.random.IntN(3)] }

func (f *fleet) fail(format string, args ...any) {
	f.t.Helper()
	f.t.Fatalf("%s\nlast steps:\n%s\ndocument: %+v", fmt.Sprintf(format, args...), strings.Join(f.steps[max(0, len(f.steps)-30):], "\n"), f.doc)
}

func (f *fleet) note(format string, args ...any) {
	f.steps = append(f.steps, fmt.Sprintf(format, args...))
}

func (f *fleet) view() View {
	var v View
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if n := f.nodes[name]; !n.gone {
			v.Members = append(v.Members, n.Member)
		}
	}
	return v
}

func (f *fleet) holders() (n int) {
	for _, node := range f.nodes {
		if node.Holds {
			n++
		}
	}
	return n
}

// write replaces the document, as an operator or an orchestrator.
func (f *fleet) write(d Document) {
	f.doc = d
	f.docIndex++
	f.desired = d.Version
}

// trigger begins a rollout.
func (f *fleet) trigger(version string, p Policy) {
	f.note("trigger %s %+v", version, p)
	f.write(begin(version, p, "", f.doc.Previous, f.now))
}

// observe is the first half of a cycle.
func (f *fleet) observe() {
	f.cycles = append(f.cycles, cycle{f.view(), f.doc, f.docIndex, f.index})
}

// act is the second half: it is carried out only if nobody was faster.
func (f *fleet) act() {
	if len(f.cycles) == 0 {
		return
	}
	i := f.random.IntN(len(f.cycles))
	c := f.cycles[i]
	f.cycles = slices.Delete(f.cycles, i, i+1)
	next, limit, decisions := Plan(c.doc, c.view, f.now)
	f.check(c, next, limit)
	if c.docIndex != f.docIndex || c.index != f.index {
		return
	}
	for _, d := range decisions {
		f.note("decision: %s: %s (%s) %v", d.Kind, d.Text, d.Reason, d.Nodes)
	}
	if !next.equal(f.doc) {
		f.write(next)
	}
	if limit >= 0 {
		f.max = limit
	}
	f.seen = c.view
	for _, m := range c.view.Members {
		if m.failure(f.doc, f.now) != "" {
			f.nodes[m.Node].stumbled = true
		}
	}
}

// check holds a plan to what it promises, whether it is carried out or not.
func (f *fleet) check(c cycle, next Document, limit int) {
	f.t.Helper()
	again, limitAgain, more := Plan(next, c.view, f.now)
	if !again.equal(next) || limitAgain != limit || len(more) > 0 {
		f.fail("planning again changes something: %v\n%+v\n%+v", more, next, again)
	}
	if limit == 0 || limit < -1 || next.UsesSlots() == (limit < 0) {
		f.fail("%d slots", limit)
	}
	s := newSurvey(c.doc, c.view, f.now)
	allowed := c.doc.Policy.MaxFailures + c.doc.Forgiven
	if c.doc.UsesSlots() && !c.doc.Forgive && c.counts().Failed > allowed && !next.Over() && next.Stopped == nil && next.Version == c.doc.Version {
		f.fail("%d failed of %d that may, and it goes on", s.counts.Failed, allowed)
	}
	before, after := c.doc.Rule, next.Rule
	before.Full, after.Full = false, false
	if after.equal(before) || after.From == nil {
		return
	}
	for _, m := range s.members { // another stretch begins
		if m.key.Compare(*after.From) < 0 && !m.settled() {
			f.fail("%s comes before %+v and is not settled", m.Node, *after.From)
		}
		if m.standing == working {
			f.fail("%s is still under way", m.Node)
		}
	}
}

func (c cycle) counts() Counts { return newSurvey(c.doc, c.view, c.doc.Started).counts }

// try is one attempt of a node to begin: admitted, a slot, asked again.
func (f *fleet) try(n *simNode) {
	self := Self{Node: n.Node, Roles: n.Roles, Zone: n.Zone, Member: true, Holds: n.Holds, Sick: n.Sick}
	s := Snapshot{Desired: f.desired, Document: f.doc, Exists: true}
	if n.gone || !n.Up || n.Version == f.desired || n.Holds || !Admit(s, self, f.now).OK() {
		return
	}
	if !f.doc.UsesSlots() {
		n.Version, n.Arrived = f.desired, f.now
		return
	}
	if f.holders() >= f.max {
		return
	}
	f.begins(n)
	n.Holds, n.HeldSince, n.group, n.stumbled = true, f.now, f.doc.Policy.KeyOf(f.doc.Version, n.Node, n.Roles, n.Zone), false
	f.index++
	f.note("%s begins (%d of %d)", n.Node, f.holders(), f.max)
}

// begins checks what must be true at the moment of admission, by what whoever
// orchestrates knew.
func (f *fleet) begins(n *simNode) {
	f.t.Helper()
	if f.doc.Stopped != nil || f.doc.Phase == Aborted {
		f.fail("%s begins in a rollout that is stopped", n.Node)
	}
	if !n.Sick {
		p := survey{}
		d := f.doc
		p = newSurvey(d, f.seen, f.now)
		allowed, out := p.room()
		count := f.holders() + 1
		for _, m := range out {
			if o := f.nodes[m.Node]; !o.Holds && o != n {
				count++
			}
		}
		if count > allowed && f.doc.Phase != Done {
			f.fail("%s begins, and %d are out of service of %d that may be", n.Node, count, allowed)
		}
	}
	if !f.doc.Policy.ZoneByZone && len(f.doc.Policy.Order) == 0 || f.doc.Phase == Done || f.doc.Phase == RollingBack {
		return
	}
	key := f.doc.Policy.KeyOf(f.doc.Version, n.Node, n.Roles, n.Zone)
	for _, o := range f.nodes {
		if o.Holds && !o.stumbled && o.Up && !o.gone && o.failure(f.doc, f.now) == "" && !o.group.sameGroup(key) {
			f.fail("%s begins in %+v while %s is out of service in %+v", n.Node, key, o.Node, o.group)
		}
	}
}

// work is what a node that holds a slot does next.
func (f *fleet) work(n *simNode) {
	if !n.Holds || !n.Up || n.gone {
		return
	}
	switch {
	case !f.healthy && n.Config.State != nodes.Failed && f.random.IntN(25) == 0:
		n.Config = nodes.State{State: nodes.Failed, Version: f.desired, Since: f.now, Detail: "broken"}
		f.note("%s fails", n.Node)
	case f.random.IntN(3) == 0:
		n.Config = nodes.State{State: nodes.Success, Version: f.desired, Since: f.now}
		n.Version, n.Arrived, n.Holds, n.Sick = f.desired, f.now, false, false
		f.index++
		f.note("%s arrived", n.Node)
	}
}
