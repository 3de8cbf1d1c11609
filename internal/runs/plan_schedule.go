package runs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/change"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// begin decides the members of a run, once; members join a rule later, too.
func (p *planner) begin(a *Active) {
	r := &a.Run
	if r.State == NeedsApproval || r.State.Ended() && r.Rule == nil || r.Cancel != "" {
		return
	}
	if p.s.Still != "" {
		if r.State == Pending {
			r.Why = p.s.Still
		}
		return
	}
	if r.Rule != nil {
		p.join(a)
	}
	if r.State != Pending {
		return
	}
	if r.Rule == nil && !r.Request.OnManager {
		a.Roster = p.matching(r.Request)
	}
	r.State, r.Why, r.Started = Running, "", p.s.Now
	text := fmt.Sprintf("members: %d", len(a.Roster))
	if r.Request.OnManager {
		text = "on a manager"
	}
	r.History = noted(r.History, Change{At: p.s.Now, State: Running, By: p.origin(), Text: text})
	p.decide(event.ChangeBegan, r.ID, "", fmt.Sprintf("workflow %q begins: %s", r.Request.Workflow, text))
}

// join adds the members that match a rule by now.
func (p *planner) join(a *Active) {
	if a.Run.Rule.Gone {
		return
	}
	for _, node := range p.matching(a.Run.Request) {
		if !slices.Contains(a.Roster, node) {
			a.Roster = append(a.Roster, node)
		}
	}
}

// matching are the members that a request is for, sorted.
func (p *planner) matching(q Request) []string { return Matching(q, p.s.Members, p.s.Filter) }

// Matching returns the names of the members that a request is for, sorted; own
// is the cluster's filter. Managers are left out unless the request is for
// them by role. An expression that cannot be read matches no member.
func Matching(q Request, members []cluster.Member, own *cluster.Filter) []string {
	filter, err := cluster.ParseFilter(q.Filter)
	if err != nil {
		return nil
	}
	names := []string{}
	for i := range members {
		m := &members[i]
		manager := slices.Contains(m.Roles, cluster.RoleManager)
		switch {
		case manager && q.Role != cluster.RoleManager:
		case !manager && own != nil && !own.Match(m):
		case q.Role != "" && !slices.Contains(m.Roles, q.Role):
		case len(q.Nodes) > 0 && !slices.Contains(q.Nodes, m.Node):
		case filter.Match(m):
			names = append(names, m.Node)
		}
	}
	slices.Sort(names)
	return names
}

// schedule puts jobs into the queues of members: where no older run has something to do, and as
// package pace decides.
func (p *planner) schedule(a *Active) {
	r := &a.Run
	if r.State == NeedsApproval || r.State == Pending {
		return
	}
	p.stop(a)
	rules := p.rules(a)
	for _, node := range a.Roster {
		j, ok := a.Jobs[node]
		if ok && !j.State.Ended() && !p.takenBack(a, rules, node, j) {
			p.claim(node, r.ID)
			p.pass(a, node, j)
		}
	}
	waits := func(node string) bool { _, begun := a.Jobs[node]; return !begun && p.after(a, node) }
	if !slices.ContainsFunc(a.Roster, waits) {
		return // as of most rules at most times
	}
	admits := p.admits(a)
	if !slices.ContainsFunc(a.Roster, func(node string) bool { return waits(node) && admits(node) }) {
		return // a step is at work
	}
	var begin []string
	for _, o := range p.offers(a, p.wants(a, admits, rules.Closed())) {
		p.claim(o.Node, r.ID)
		p.enqueue(a, o, 1, nil)
		begin = append(begin, o.Node)
	}
	if len(begin) > 0 {
		p.out.Decisions = append(p.out.Decisions, scheduled(r, begin))
	}
}

// wants is what a run wants of its members, in their order; closed is why its windows let none begin.
func (p *planner) wants(a *Active, admits func(node string) bool, closed string) []pace.Want {
	r := &a.Run
	wants := make([]pace.Want, 0, len(a.Roster))
	for _, node := range a.Roster {
		w := pace.Want{Node: node, Undisturbed: !r.disturbs(p.members[node])}
		_, w.Granted = a.Jobs[node]
		switch {
		case w.Granted: // in its place until it has settled
			w.Has = p.settled(a, node)
		case r.Cancel != "" || r.Stopped != "" || !admits(node) || !p.after(a, node):
			w.Later = "other members come first"
		case closed != "": // it is neither before others, nor lost, until its window opens
		case p.s.Left != nil && p.freed[node] && !w.Undisturbed:
			p.claim(node, r.ID)
			p.again(p.s.Now)
			w.Later = "its place is counted first"
		default:
			older := p.claimed[node]
			if w.Undisturbed { // what waits for a place is not before others
				p.claim(node, r.ID)
			}
			switch {
			case p.withoutHost(node) && r.Rule == nil:
				p.fail(a, node, "a logical member: no host of this name is in Consul's catalog")
				p.stop(a)
				w.Has = true
			case p.gone(node) && r.Rule == nil:
				p.lose(a, node, Job{State: Lost, Why: "its agent was down before it began"})
				p.stop(a)
				w.Has = true
			default:
				w.Barred = p.bars(a, node, older)
			}
		}
		wants = append(wants, w)
	}
	return wants
}

// rules is the survey of a run without its members: when its windows and freezes let any begin. The plan is due again when
// that changes.
func (p *planner) rules(a *Active) *pace.Survey {
	v := p.survey(a, nil)
	p.again(v.Plan().Again)
	return v
}

// survey is a run as package pace sees it, within the budget of the cluster.
func (p *planner) survey(a *Active, wants []pace.Want) *pace.Survey {
	s, c, now := p.paced(a, wants)
	if p.s.Left != nil && slices.ContainsFunc(wants, func(w pace.Want) bool { return !w.Undisturbed }) {
		s.Places = p.s.Left(p.demand(a), p.taken)
	}
	return pace.NewSurvey(s, c, now)
}

// paced is a run as package pace sees it, with what it wants of members, but without the budget.
func (p *planner) paced(a *Active, wants []pace.Want) (pace.Situation, pace.Change, time.Time) {
	r := &a.Run
	policy := r.Request.policy()
	policy.Windows = r.Request.Windows
	if policy.MaxParallel == (pace.Amount{}) {
		policy.MaxParallel = pace.Amount{N: 100, Percent: true}
	}
	c := pace.Change{
		ID: cluster.RunChange(r.ID), Policy: policy, Created: r.Created, Disturbs: true, Final: true, ByTag: true, InOrder: true, Newcomers: -1, Wants: wants,
		Unfrozen: r.Request.DuringFreeze != "", OverBudget: r.Request.OverBudget != "", Stopped: cmp.Or(r.Cancel, r.Stopped),
	}
	s := pace.Situation{Halted: p.s.Still, Freezes: p.s.Freezes, Quiet: p.s.Quiet, Hosts: make([]pace.Host, 0, len(wants))}
	for i := range wants {
		w := &wants[i]
		h := pace.Host{Node: w.Node, Up: true} // Want.Barred says when its agent is down
		if m := p.members[w.Node]; m != nil {
			h.Roles, h.Zone = m.Roles, m.Zone
		}
		if w.Granted && !w.Has {
			h.Parts = []pace.Part{{Change: c.ID, Answer: pace.Accepted}}
		}
		s.Hosts = append(s.Hosts, h)
	}
	slices.SortFunc(s.Hosts, func(a, b pace.Host) int { return cmp.Compare(a.Node, b.Node) })
	return s, c, p.s.Now
}

// offers are the members on which a run begins now. It notes why it does not begin on others, and which of them
// only the budget keeps back.
func (p *planner) offers(a *Active, wants []pace.Want) []pace.Offer {
	survey := p.survey(a, wants)
	plan := survey.Plan()
	for i := range survey.Members {
		m := &survey.Members[i]
		if m.State != pace.Pending || m.Want.Later != "" {
			continue
		}
		if why := survey.Bars(*m); !why.None() && why.Code != pace.BecausePaused { // the run itself says that it was stopped
			set(p.waits, a.Run.ID, m.Node, why.Text("the run"))
		}
	}
	for _, o := range plan.Offers {
		if a.Run.disturbs(p.members[o.Node]) {
			p.taken = append(p.taken, o.Node)
		}
	}
	if len(plan.Denied) > 0 {
		demand := p.demand(a)
		for _, d := range plan.Denied {
			demand.Nodes = append(demand.Nodes, d.Node)
			set(p.waits, a.Run.ID, d.Node, d.Limit.String())
		}
		p.out.Denied = append(p.out.Denied, demand)
	}
	return plan.Offers
}

// disturbs reports whether the run takes a member out of service; nil: the node is not a member.
func (r *Run) disturbs(m *cluster.Member) bool {
	q := &r.Request
	return !q.OnManager && !r.Gate && (q.Disturbs || m != nil && slices.Contains(m.Disturbing, q.Workflow))
}

// jobGrant is what the grants of the run's jobs on a member say; nil: the node is not a member.
func (r *Run) jobGrant(m *cluster.Member) change.JobGrant {
	manager := r.Request.OnManager
	return change.JobGrant{Manager: manager, Gate: manager && r.Gate, Disturbs: r.disturbs(m)}
}

// demand is the run as one that wants places.
func (p *planner) demand(a *Active) pace.Demand {
	d := pace.Demand{Change: cluster.RunChange(a.Run.ID), Created: a.Run.Created}
	for _, node := range a.Roster {
		if q := p.queues[node]; slices.ContainsFunc(q.Jobs, func(e Queued) bool { return e.Disturbs && e.Run == a.Run.ID }) {
			d.Open++
		}
	}
	return d
}

// claim keeps a node for the oldest run that has something to do on it.
func (p *planner) claim(node, run string) {
	if p.claimed[node] == "" {
		p.claimed[node] = run
	}
}

// bars is why a run cannot begin on a member, whatever its pace; empty: it can. older is
// the run before it on that node.
func (p *planner) bars(a *Active, node, older string) string {
	switch {
	case older != "":
		return fmt.Sprintf("run %s is before it", older)
	case p.s.Closed[node]:
		return "its queue cannot be read"
	case !p.up(node):
		return "its agent is down"
	}
	why := p.busy(laneOf(a.Run, node))
	if why == "" && p.s.Barred != nil && a.Run.disturbs(p.members[node]) {
		why = p.s.Barred(node)
	}
	return why
}

// takenBack takes a job that may no longer begin out of its queue: its window closed, or its
// host is frozen. It reports whether it did.
func (p *planner) takenBack(a *Active, rules *pace.Survey, node string, j Job) bool {
	i := p.queues[node].find(jobID(a.Run.ID, j.Attempt))
	if i < 0 || p.queues[node].Jobs[i].State != Pending || a.Run.Cancel != "" || a.Run.Stopped != "" {
		return false
	}
	e := p.queues[node].Jobs[i]
	why := rules.Closed()
	if m := p.members[node]; why == "" && m != nil && a.Run.disturbs(m) {
		if freeze, frozen := rules.Frozen(m.Roles); frozen {
			why = freeze.String()
		}
	}
	if late := !e.Until.IsZero() && !p.s.Now.Before(e.Until); why == "" && !late {
		return false
	}
	p.remove(node, e.Job)
	j.State, j.Why, j.Task, j.Back = Pending, "", "", true
	j.History = noted(j.History, Change{At: p.s.Now, State: Pending, By: p.origin(), Text: strings.TrimSuffix("it was taken back before it began: "+why, ": ")})
	set(p.out.Jobs, a.Run.ID, node, j)
	delete(a.Jobs, node)
	if a.Back == nil {
		a.Back = map[string]Job{}
	}
	a.Back[node] = j
	return true
}

// scheduled is the decision that a run goes to nodes.
func scheduled(r *Run, nodes []string) decided {
	return decided{decide(event.ChangeStepBegan, r.ID, "", fmt.Sprintf("workflow %q on %s", r.Request.Workflow, several(nodes))), nodes}
}

// pass passes a cancellation on to a node, or removes the job from the queue if it
// has not started.
func (p *planner) pass(a *Active, node string, j Job) {
	if a.Run.Cancel == "" && a.Run.Stopped == "" {
		return
	}
	i := p.queues[node].find(jobID(a.Run.ID, j.Attempt))
	if i < 0 {
		return
	}
	q := p.queues[node].clone()
	switch e := &q.Jobs[i]; {
	case e.State == Pending:
		j.State, j.Why = Cancelled, "before it began"
		p.remove(node, e.Job)
		p.put(a, node, j, p.s.Now, p.origin(), j.Why)
	case a.Run.Cancel == "": // a run that was stopped lets members end
	case e.Cancel == "" || a.Run.Kill && !e.Kill:
		e.Cancel, e.Kill = a.Run.Cancel, a.Run.Kill
		p.putQueue(node, q)
	}
}

func (p *planner) enqueue(a *Active, o pace.Offer, attempt int, done []string) {
	node := o.Node
	back, was := a.Back[node]
	if was { // what the host knows of that attempt has ended
		attempt = max(attempt, back.Attempt+1)
	}
	q := p.queues[node].clone()
	q.Jobs = append(q.Jobs, Queued{
		Run: a.Run.ID, JobGrant: a.Run.jobGrant(p.members[node]), Until: o.Until,
		Result: Result{Job: jobID(a.Run.ID, attempt), Done: done, State: Pending},
	})
	p.putQueue(node, q)
	j := a.Jobs[node]
	if was {
		j = Job{History: back.History}
	}
	j.State, j.Why, j.Task, j.Once, j.Attempt, j.Done = Pending, "", "", "", attempt, done
	p.put(a, node, j, p.s.Now, p.origin(), "")
}

// busy is why nothing can be added to a lane of a node's queue; empty: it can. Runs on
// managers have a lane of their own, since their tasks wait for other runs, and so have
// gates, for which rollouts wait.
func (p *planner) busy(l lane) string {
	for _, e := range p.queues[l.node].Jobs {
		if e.lane(l.node) == l && !e.State.Ended() {
			return fmt.Sprintf("run %s is before it", e.Run)
		}
	}
	if n := len(p.queues[l.node].Jobs); n >= pace.MostJobs {
		return fmt.Sprintf("the host has %d jobs already", n)
	}
	return ""
}

// after reports whether the rule that a rule comes after is done on a member.
func (p *planner) after(a *Active, node string) bool {
	if a.Run.Rule == nil || a.Run.Rule.After == "" {
		return true
	}
	return slices.ContainsFunc(p.before(a), func(o *Active) bool { return o.Jobs[node].State == Done })
}

// willCome reports whether the turn of a member in a rule will come: what the rule
// comes after is done there, or in progress. One after a rule that failed there,
// or whose member is down, waits for people.
func (p *planner) willCome(a *Active, node string) bool {
	seen := map[*Active]bool{}
	var on func(*Active) bool
	on = func(a *Active) bool {
		if p.after(a, node) {
			return true
		}
		seen[a] = true
		return slices.ContainsFunc(p.before(a), func(o *Active) bool {
			j, scheduled := o.Jobs[node]
			return scheduled && !j.State.Ended() || !scheduled && !seen[o] && slices.Contains(o.Roster, node) && on(o)
		})
	}
	return p.up(node) && on(a)
}

// before are the rules of which one has to be done on a member first.
func (p *planner) before(a *Active) []*Active {
	var all []*Active
	for _, o := range p.runs {
		r := o.Run.Rule
		if o != a && r != nil && !r.Gone && (r.Name == a.Run.Rule.After || o.Run.Request.Workflow == a.Run.Rule.After) {
			all = append(all, o)
		}
	}
	return all
}

// several names the first five.
func several(names []string) string { return text.Few(", ", names, 5) }

// onManager keeps a run with one node: a manager whose agent is up, else the
// orchestrator's own. When that is lost the next node continues at the first task
// that is not done, see lose.
func (p *planner) onManager(a *Active) {
	r := &a.Run
	if r.State == NeedsApproval || r.State == Pending || r.State.Ended() {
		return
	}
	rules := p.rules(a)
	for _, node := range a.Roster {
		if j, queued := a.Jobs[node]; queued && !j.State.Ended() {
			p.takenBack(a, rules, node, j)
		}
	}
	// A node without a job was chosen in a cycle whose write of the queue was overtaken, or
	// which a crash ended: another may be the right one by now.
	a.Roster = slices.DeleteFunc(a.Roster, func(node string) bool { _, queued := a.Jobs[node]; return !queued })
	attempts, done, last := 0, r.Request.Done, ""
	for _, node := range a.Roster {
		j := a.Jobs[node]
		if j.Attempt >= attempts {
			attempts, done, last = j.Attempt, j.Done, node
		}
		if !j.State.Ended() {
			p.pass(a, node, j)
			return
		}
	}
	if last != "" && a.Jobs[last].State != Lost || r.Cancel != "" {
		return
	}
	node := p.manager(r.Request.Workflow)
	begin := p.offers(a, []pace.Want{{Node: node, Undisturbed: true, Barred: p.bars(a, node, "")}})
	if len(begin) == 0 {
		return
	}
	if !slices.Contains(a.Roster, node) {
		a.Roster = append(a.Roster, node)
	}
	p.enqueue(a, begin[0], attempts+1, done)
	if last != "" {
		p.decide(event.ChangeStepBegan, r.ID, node, fmt.Sprintf("workflow %q continues: it was on %s", r.Request.Workflow, last))
		return
	}
	p.decide(event.ChangeStepBegan, r.ID, node, fmt.Sprintf("workflow %q on %s", r.Request.Workflow, node))
}

// manager is where a workflow of managers runs now.
func (p *planner) manager(workflow string) string {
	var up []cluster.Member
	for node, m := range p.members {
		if slices.Contains(m.Roles, cluster.RoleManager) && p.up(node) {
			up = append(up, *m)
		}
	}
	return chooseManager(workflow, up, p.s.Holder)
}
