package runs

import (
	"fmt"
	"slices"

	"github.com/jorc/jorc/internal/cluster"
)

// onManager keeps a run with one node: a manager whose agent is up, else the
// orchestrator's own. When that is lost the next goes on at the first task that
// is not done.
func (p *planner) onManager(a *Active) {
	r := &a.Run
	if r.State == NeedsApproval || r.State == Pending || r.State.Ended() {
		return
	}
	attempts, done, last := 0, []string(nil), ""
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
	node := p.manager()
	if node == "" || p.wait(a, node, "") {
		return
	}
	if !slices.Contains(a.Roster, node) {
		a.Roster = append(a.Roster, node)
	}
	p.enqueue(a, node, attempts+1, done)
	if last != "" {
		p.tell(RunMoved, r.ID, node, fmt.Sprintf("workflow %q goes on: it was on %s", r.Request.Workflow, last))
		return
	}
	p.tell(RunScheduled, r.ID, node, fmt.Sprintf("workflow %q on %s", r.Request.Workflow, node))
}

// manager is where workflows of managers run now.
func (p *planner) manager() string {
	var up []string
	for node, m := range p.members {
		if slices.Contains(m.Roles, cluster.RoleManager) && p.up(node) {
			up = append(up, node)
		}
	}
	if len(up) == 0 {
		return p.s.Holder
	}
	return slices.Min(up)
}
