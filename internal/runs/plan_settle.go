package runs

import (
	"fmt"
	"slices"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/event"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/text"
)

// collect reads what nodes report in their queues.
func (p *planner) collect(a *Active) {
	for _, node := range a.Roster {
		j, scheduled := a.Jobs[node]
		if !scheduled || p.s.Closed[node] {
			continue
		}
		i := p.queues[node].find(jobID(a.Run.ID, j.Attempt))
		switch {
		case i >= 0:
			p.accept(a, node, j, p.queues[node].Jobs[i])
		case !j.State.Ended():
			j.State, j.Why = Lost, "it is no longer in the node's queue"
			p.lose(a, node, j)
		}
	}
}

// accept brings a job up to what its node reports.
func (p *planner) accept(a *Active, node string, j Job, e Queued) {
	j.Done, j.Once = e.Done, e.Once
	switch {
	case e.State.Ended() && e.Disturbs && j.State == e.State: // it is known: the host has to be in service
		p.release(a, node, e)
	case e.State.Ended():
		if j.State == Pending && !e.Started.IsZero() { // both since the last look
			j.State = Running
			p.put(a, node, j, e.Started, node, "")
			j = a.Jobs[node]
		}
		j.State, j.Why, j.Task, j.ExitCode, j.LogURL = e.State, e.Why, e.Task, e.ExitCode, e.LogURL
		p.put(a, node, j, e.Ended, node, e.Why)
		if e.Tail != "" {
			set(p.out.Tails, a.Run.ID, node, e.Tail)
		}
		if e.State == Failed {
			p.decide(event.ChangeHostFailed, a.Run.ID, node, fmt.Sprintf("workflow %q failed on %s: %s", a.Run.Request.Workflow, node, e.Why))
		}
		if !e.Disturbs {
			p.remove(node, e.Job)
			break
		}
		p.release(a, node, e)
	case j.State == Lost:
		if p.up(node) {
			j.State, j.Why = e.State, ""
			p.put(a, node, j, p.s.Now, p.origin(), "the member is back")
			p.decide(event.ChangeHostBack, a.Run.ID, node, node+" is back")
		} else if p.s.Now.Sub(e.Started) > keepFor {
			p.remove(node, e.Job) // no run waits for it
		}
	case e.State == Running && j.State == Pending:
		j.State, j.Why, j.Task = Running, e.Why, e.Task
		p.put(a, node, j, e.Started, node, "")
	case len(e.Done) != len(a.Jobs[node].Done), e.Once != a.Jobs[node].Once, e.Why != j.Why, e.Task != j.Task:
		j.Why, j.Task = e.Why, e.Task // what it waits for
		p.put(a, node, j, p.s.Now, node, "")
	}
	if j, e := a.Jobs[node], e; !j.State.Ended() && p.gone(node) {
		p.giveUp(a, node, j, e)
	}
}

// release takes a job that has ended out of its queue once its host no longer is out of service for it.
func (p *planner) release(a *Active, node string, e Queued) {
	if p.settled(a, node) {
		p.remove(node, e.Job)
	}
}

// giveUp ends the wait for a member that is gone for too long. What it has started stays in
// its queue, so that the result can be taken when it is back; the rest does not:
// nothing starts that is no longer expected.
func (p *planner) giveUp(a *Active, node string, j Job, e Queued) {
	begun := e.State == Running
	j.State, j.Why = Lost, "its agent went down while it ran"
	if !begun {
		j.Why, j.Once = "its agent was down before it began", ""
	}
	if !begun || a.Run.Request.OnManager {
		p.remove(node, e.Job)
	}
	p.lose(a, node, j)
}

// lose ends a job of which nothing is heard. A run on a manager continues elsewhere, unless that
// would run a task again that must not: it is then interrupted.
func (p *planner) lose(a *Active, node string, j Job) {
	if j.Once != "" && a.Run.Request.OnManager {
		j.State, j.Task = Failed, j.Once
		j.Why = fmt.Sprintf("interrupted: %s: task %q is not idempotent, so it is not run elsewhere: 'jorc cluster run --retry-of %s' continues with it, "+
			"--from-start runs the whole workflow", j.Why, j.Once, a.Run.ID)
		p.put(a, node, j, p.s.Now, p.origin(), j.Why)
		p.decide(event.ChangeHostFailed, a.Run.ID, node, fmt.Sprintf("workflow %q failed on %s: %s", a.Run.Request.Workflow, node, j.Why))
		return
	}
	p.put(a, node, j, p.s.Now, p.origin(), j.Why)
	p.decide(event.ChangeHostFailed, a.Run.ID, node, fmt.Sprintf("workflow %q on %s is lost: %s", a.Run.Request.Workflow, node, j.Why))
}

// fail ends a job that never began.
func (p *planner) fail(a *Active, node, why string) {
	p.put(a, node, Job{State: Failed, Why: why}, p.s.Now, p.origin(), why)
	p.decide(event.ChangeHostFailed, a.Run.ID, node, fmt.Sprintf("workflow %q failed on %s: %s", a.Run.Request.Workflow, node, why))
}

// dropUnknown removes from queues the jobs of unknown runs. A node that runs one
// ends it then.
func (p *planner) dropUnknown() {
	known := map[string]bool{}
	for _, a := range p.runs {
		known[a.Run.ID] = true
	}
	for node, q := range p.queues {
		for _, e := range q.Jobs {
			if !known[e.Run] && !p.s.Unread[e.Run] {
				p.remove(node, e.Job)
			}
		}
	}
}

// mostDenied bounds the members that a run's document names.
const mostDenied = 20

// settle counts the members, and ends a run of which nothing more is expected. The
// result of a lost member changes the result of the run, also afterwards.
func (p *planner) settle(a *Active) {
	r := &a.Run
	if r.State == NeedsApproval || r.State == Pending || r.Started.IsZero() {
		return
	}
	var inProgress bool
	r.Counts, inProgress = p.count(a)
	was := r.State
	r.Denied = nil
	if i := slices.IndexFunc(p.out.Denied, func(d pace.Demand) bool { return d.Change == cluster.RunChange(r.ID) }); i >= 0 {
		r.Denied = slices.Clone(p.out.Denied[i].Nodes[:min(len(p.out.Denied[i].Nodes), mostDenied)])
	}
	switch {
	case r.Request.OnManager:
		if r.State, r.Why = p.managerVerdict(a); r.State == Running {
			r.Why = p.waiting(a)
		}
	case inProgress:
		r.State, r.Why = Running, p.waiting(a)
		if r.Why == "" && len(r.Denied) > 0 {
			r.Why = several(r.Denied) + ": " + p.waits[r.ID][r.Denied[0]]
		}
		switch {
		case r.Cancel != "" && r.Kill:
			r.Why = "cancelled by " + r.Cancel + ": running tasks are ended"
		case r.Cancel != "":
			r.Why = "cancelled by " + r.Cancel + ": members end after the task that they are at"
		case r.Stopped != "":
			r.Why = "stopped: " + r.Stopped
		}
	default:
		r.State, r.Why = verdict(r)
	}
	if was == r.State {
		return
	}
	r.Ended = time.Time{}
	if r.State.Ended() {
		r.Ended = p.s.Now
	}
	r.History = noted(r.History, Change{At: p.s.Now, State: r.State, By: p.origin(), Text: r.Why})
	if r.State.Ended() {
		text := fmt.Sprintf("workflow %q: %s", r.Request.Workflow, r.State)
		if r.Why != "" {
			text += ": " + r.Why
		}
		kind := event.ChangeEnded
		if r.State == Done {
			kind = event.ChangeDone
		}
		p.decide(kind, r.ID, "", text)
	}
}

// waiting is why a run in progress does not continue on any member; empty: it does.
func (p *planner) waiting(a *Active) string {
	nodes := map[string][]string{} // by reason
	for _, node := range a.Roster {
		j, scheduled := a.Jobs[node]
		why := j.Why
		switch {
		case scheduled && p.settled(a, node):
			continue
		case scheduled && j.State.Ended():
			why = p.unhealthy(a, node)
		case !scheduled:
			if why = p.waits[a.Run.ID][node]; why == "" {
				continue // it waits for the limit, or for a rule before it
			}
		case why == "" && p.up(node):
			return ""
		case why == "":
			why = "its agent is down"
		}
		nodes[why] = append(nodes[why], node)
	}
	var parts []string
	for _, why := range sorted(nodes) {
		parts = append(parts, several(nodes[why])+": "+why)
	}
	if why := p.waits[a.Run.ID][p.manager(a.Run.Request.Workflow)]; a.Run.Request.OnManager && len(parts) == 0 {
		return why
	}
	return text.Tail(text.Few("; ", parts, 3), maxWhy)
}

// count counts members by state. A member whose turn in a rule may never come
// (because it is down, or because what the rule comes after is not in progress) is
// not work in progress.
func (p *planner) count(a *Active) (c Counts, inProgress bool) {
	over := a.Run.Cancel != "" || a.Run.Stopped != "" || a.Run.Rule != nil && a.Run.Rule.Gone
	for _, node := range a.Roster {
		j, scheduled := a.Jobs[node]
		switch {
		case scheduled:
			c.add(j.State)
			inProgress = inProgress || !j.State.Ended() || !over && !p.settled(a, node)
		case over:
			c.add(Cancelled)
		default:
			c.add(Pending)
			inProgress = inProgress || a.Run.Rule == nil || p.willCome(a, node)
		}
	}
	return c, inProgress
}

// verdict is the result of a run of which nothing is in progress.
func verdict(r *Run) (State, string) {
	c := r.Counts
	bad := ""
	switch {
	case c.Failed > 0 && c.Lost > 0:
		bad = fmt.Sprintf("%d of %d members failed, %d were lost", c.Failed, c.Members, c.Lost)
	case c.Failed > 0:
		bad = fmt.Sprintf("%d of %d members failed", c.Failed, c.Members)
	case c.Lost > 0:
		bad = fmt.Sprintf("%d of %d members were lost", c.Lost, c.Members)
	}
	switch {
	case r.Cancel != "" && bad == "":
		return Cancelled, "by " + r.Cancel
	case r.Cancel != "":
		return Cancelled, "by " + r.Cancel + "; " + bad
	case r.Rule != nil && r.Rule.Gone:
		return Cancelled, "the rule no longer exists"
	case r.Stopped != "" && c.Cancelled > 0:
		return Failed, fmt.Sprintf("%s; %d did not start", r.Stopped, c.Cancelled)
	case bad != "":
		return Failed, bad
	case c.Members == 0 && r.Rule == nil:
		return Failed, "it matches no member"
	}
	return Done, ""
}

// managerVerdict is the result of the last attempt.
func (p *planner) managerVerdict(a *Active) (State, string) {
	var last Job
	node := ""
	for _, n := range a.Roster {
		if j := a.Jobs[n]; j.Attempt > last.Attempt {
			last, node = j, n
		}
	}
	switch {
	case last.State == Failed:
		return Failed, fmt.Sprintf("on %s: %s", node, last.Why)
	case last.State == Done:
		return Done, ""
	case last.State == Cancelled, a.Run.Cancel != "" && (node == "" || last.State == Lost):
		return Cancelled, "by " + a.Run.Cancel
	}
	return Running, ""
}
