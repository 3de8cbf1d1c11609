package runs

import (
	"fmt"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/workflow"
)

// settle counts, and ends a run of which nothing more is expected. The result
// of a lost member changes what it came to, also afterwards.
func (p *planner) settle(a *Active) {
	r := &a.Run
	if r.State == NeedsApproval || r.State == Pending || r.Started.IsZero() {
		return
	}
	var inProgress bool
	r.Counts, inProgress = p.count(a)
	was := r.State
	switch {
	case r.Request.OnManager:
		if r.State, r.Why = p.managerVerdict(a); r.State == Running {
			r.Why = p.waiting(a)
		}
	case inProgress:
		r.State, r.Why = Running, p.waiting(a)
		switch {
		case r.Cancel != "" && r.Kill:
			r.Why = "cancelled by " + r.Cancel + ": running tasks are ended"
		case r.Cancel != "":
			r.Why = "cancelled by " + r.Cancel + ": members end after the task that they are at"
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
		p.tell(RunEnded, r.ID, "", text)
	}
}

// waiting is why a run in progress does not continue on any member; empty: it does.
func (p *planner) waiting(a *Active) string {
	nodes := map[string][]string{} // by reason
	for _, node := range a.Roster {
		j, scheduled := a.Jobs[node]
		why := j.Why
		switch {
		case scheduled && j.State.Ended():
			continue
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
	if why := p.waits[a.Run.ID][p.manager()]; a.Run.Request.OnManager && len(parts) == 0 {
		return why
	}
	const most = 3
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("%d more reasons", more))
	}
	return workflow.LastBytes(strings.Join(parts, "; "), maxWhy)
}

// count counts members by state. Those that wait for a rule to come to them
// (because they are down, or because what it comes after is not on its way) are
// no work in progress.
func (p *planner) count(a *Active) (c Counts, inProgress bool) {
	over := a.Run.Cancel != "" || a.Run.Rule != nil && a.Run.Rule.Gone
	for _, node := range a.Roster {
		j, scheduled := a.Jobs[node]
		switch {
		case scheduled:
			c.add(j.State)
			inProgress = inProgress || !j.State.Ended()
		case over:
			c.add(Cancelled)
		default:
			c.add(Pending)
			inProgress = inProgress || a.Run.Rule == nil || p.comes(a, node)
		}
	}
	return c, inProgress
}

// verdict is what a run comes to when nothing of it is in progress.
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
		return Cancelled, "the rule is not there any more"
	case bad != "":
		return Failed, bad
	case c.Members == 0 && r.Rule == nil:
		return Failed, "it matches no member"
	}
	return Done, ""
}

// managerVerdict is what the last attempt came to.
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
