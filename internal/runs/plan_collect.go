package runs

import "fmt"

// collect takes over what nodes report in their queues.
func (p *planner) collect(a *Active) {
	for _, node := range a.Roster {
		j, scheduled := a.Jobs[node]
		if !scheduled || p.s.Closed[node] {
			continue
		}
		i := p.queues[node].find(jobID(a.Run.ID, j.Attempt))
		switch {
		case i >= 0:
			p.take(a, node, j, p.queues[node].Jobs[i])
		case !j.State.Ended():
			j.State, j.Why = Lost, "it is not in the node's queue any more"
			p.lose(a, node, j)
		}
	}
}

// take brings a job up to what its node reports.
func (p *planner) take(a *Active, node string, j Job, e Queued) {
	j.Done = e.Done
	switch {
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
			p.tell(JobFailed, a.Run.ID, node, fmt.Sprintf("workflow %q failed on %s: %s", a.Run.Request.Workflow, node, e.Why))
		}
		p.remove(node, e.Job)
	case j.State == Lost:
		if p.up(node) {
			j.State, j.Why = e.State, ""
			p.put(a, node, j, p.s.Now, p.origin(), "the member is back")
			p.tell(JobCameBack, a.Run.ID, node, node+" is back")
		} else if p.s.Now.Sub(e.Started) > keepFor {
			p.remove(node, e.Job) // nobody waits for it any more
		}
	case e.State == Running && j.State == Pending:
		j.State, j.Why, j.Task = Running, e.Why, e.Task
		p.put(a, node, j, e.Started, node, "")
	case len(e.Done) != len(a.Jobs[node].Done), e.Why != j.Why, e.Task != j.Task:
		j.Why, j.Task = e.Why, e.Task // what it waits for
		p.put(a, node, j, p.s.Now, node, "")
	}
	if j, e := a.Jobs[node], e; !j.State.Ended() && p.gone(node) {
		p.giveUp(a, node, j, e)
	}
}

// giveUp says that a member was gone for too long. What it has begun stays in
// its queue, so that the result can be taken when it is back; the rest does not:
// nothing begins when nobody expects it any more.
func (p *planner) giveUp(a *Active, node string, j Job, e Queued) {
	begun := e.State == Running
	j.State, j.Why = Lost, "its agent went down while it ran"
	if !begun {
		j.Why = "its agent was down before it began"
	}
	if !begun || a.Run.Request.OnManager {
		p.remove(node, e.Job)
	}
	p.lose(a, node, j)
}

func (p *planner) lose(a *Active, node string, j Job) {
	p.put(a, node, j, p.s.Now, p.origin(), j.Why)
	p.tell(JobLost, a.Run.ID, node, fmt.Sprintf("workflow %q on %s is lost: %s", a.Run.Request.Workflow, node, j.Why))
}

// fail ends a job that never began.
func (p *planner) fail(a *Active, node, why string) {
	p.put(a, node, Job{State: Failed, Why: why}, p.s.Now, p.origin(), why)
	p.tell(JobFailed, a.Run.ID, node, fmt.Sprintf("workflow %q failed on %s: %s", a.Run.Request.Workflow, node, why))
}

// dropStrangers takes out of the queues what no run knows of. A node that runs
// it ends it then.
func (p *planner) dropStrangers() {
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
