package ui

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/orchestrator"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/slots"
)

// Attention is what needs an operator.
type Attention struct {
	About
	// Problems are ordered by severity and kind; empty: there is nothing to do.
	Problems []Problem `json:"problems"`
	// Count is how many there are; Problems lists at most 20 of one kind.
	Count int `json:"count"`
	// Advice is what is recommended although nothing is wrong.
	Advice []cluster.Advice `json:"advice"`
}

// Severities of problems.
const (
	Critical = "critical" // hosts or work are affected
	Warning  = "warning"  // work is stopped, or waits for a decision
)

// Problem is one thing that needs attention.
type Problem struct {
	// Kind is paused, observe_only, held, hold_file, damaged, partial, no_cluster, no_orchestrator, orchestrator_failing, budget,
	// change_stopped, change_failed, change_approval, change_waits, failed, down, agent_down, suspect, critical,
	// maintenance, lease, template_failed, template_stale, template_waiting, expiry, slow, stuck, vacancy or
	// filter.
	Kind     string    `json:"kind"`
	Severity string    `json:"severity"` // critical, warning
	Title    string    `json:"title"`
	Cause    string    `json:"cause"`
	Since    time.Time `json:"since,omitzero"`
	Hosts    []string  `json:"hosts"`      // that it is about, the first of them
	Count    int       `json:"host_count"` // all of them
	// Command is the command that helps or explains; empty: the cause says what to do.
	Command string `json:"command"`
}

// attention gathers problems.
type attention struct {
	s   *Snapshot
	all []Problem
}

// Attention returns what needs attention.
func (s *Snapshot) Attention() Attention {
	all := s.allProblems()
	a := Attention{About: s.about("cluster", "attention"), Problems: append([]Problem{}, bounded(all)...), Count: len(all), Advice: []cluster.Advice{}}
	if _, damaged := s.State.Damaged[cluster.KeyControl]; !damaged && s.hidden == nil {
		a.Advice = append(a.Advice, s.State.Control.Advice(len(s.derived.members()))...)
	}
	return a
}

// findProblems gathers all problems.
func (s *Snapshot) findProblems() []Problem {
	a := attention{s: s}
	a.control()
	a.documents()
	a.existence()
	a.orchestration()
	a.budget()
	a.rollout()
	a.states()
	a.hosts()
	a.leases()
	a.templates()
	a.expiry()
	a.stages()
	a.runs()
	a.waits()
	a.leadership()
	severity := []string{Critical, Warning}
	slices.SortStableFunc(a.all, func(a, b Problem) int {
		return cmp.Compare(slices.Index(severity, a.Severity), slices.Index(severity, b.Severity))
	})
	return a.all
}

// bounded leaves at most mostNames problems of each kind.
func bounded(all []Problem) []Problem {
	seen := map[string]int{}
	return slices.DeleteFunc(slices.Clone(all), func(p Problem) bool {
		seen[p.Kind]++
		return seen[p.Kind] > mostNames
	})
}

func (a *attention) add(p Problem, hosts ...string) {
	p.Hosts, p.Count, p.Since = first(hosts), len(hosts), p.Since.UTC()
	a.all = append(a.all, p)
}

// control is what operators stopped.
func (a *attention) control() {
	c := a.s.State.Control
	hold := func(kind, title string, h *cluster.Hold, hosts []string, command ...string) {
		if h != nil && !h.Off {
			a.add(Problem{Kind: kind, Severity: Warning, Title: title, Cause: h.TextAt(a.s.Now), Since: h.Since, Command: a.s.command(command...)}, hosts...)
		}
	}
	hold("paused", "the cluster is paused", c.Paused, nil, "cluster", "resume")
	hold("observe_only", "the orchestrator only observes", c.ObserveOnly, nil, "cluster", "observe-only", "off")
	hold("held", "convergence of the cluster is held", c.Hold, nil, "cluster", "unhold")
	for _, role := range slices.Sorted(maps.Keys(c.Roles)) {
		h := c.Roles[role]
		hold("held", fmt.Sprintf("role %s is held", role), &h, nil, "cluster", "unhold", "--role="+role)
	}
	for _, node := range slices.Sorted(maps.Keys(c.Nodes)) {
		h := c.Nodes[node]
		hold("held", node+" is held", &h, []string{node}, "cluster", "unhold", "--node="+node)
	}
	for _, node := range a.s.State.Nodes() {
		if why := a.s.State.Hosts[node].Report.HeldByFile(); why != "" {
			a.add(Problem{Kind: "hold_file", Severity: Warning, Title: node + " is held by a file on the host", Cause: why, Command: a.s.command("update", "why", node)}, node)
		}
	}
}

// leases are the ones whose time is over, on hosts that are not healthy.
func (a *attention) leases() {
	for _, node := range a.s.State.Nodes() {
		if w, ok := a.s.State.Hosts[node].Report.Wish(); ok && w.Trouble != "" {
			a.add(Problem{
				Kind: "lease", Severity: Critical, Title: "the lease of " + node + " does not end", Cause: w.Trouble, Since: w.Until,
				Command: a.s.command("change", "give-up", node),
			}, node)
		}
	}
}

// documents are the ones that cannot be read.
func (a *attention) documents() {
	a.s.State.Unreadable(func(key string, err error) {
		if errors.Is(err, consul.ErrDenied) { // the changes, which the rest does not need
			a.add(Problem{Kind: "partial", Severity: Warning, Title: "not everything could be read", Cause: err.Error(), Command: a.s.command("doctor")})
			return
		}
		remedy := cluster.RepairHint(err)
		p := Problem{Kind: "damaged", Severity: Critical, Title: "a document cannot be read: " + key, Cause: strings.TrimSuffix(err.Error()+": "+remedy, ": ")}
		p.Command = a.s.remedyCommand(p.Cause)
		if node, ok := cluster.NodeOf(key); ok {
			a.add(p, node)
			return
		}
		a.add(p)
	})
	if err := a.s.Stored.Damaged; err != nil && a.s.State.Damaged[cluster.KeyDesired] == nil {
		err := a.s.Rollouts.Usable(a.s.Stored)
		a.add(Problem{Kind: "damaged", Severity: Critical, Title: "the rollout cannot be read", Cause: err.Error(), Command: a.s.remedyCommand(err.Error())})
	}
	for _, why := range a.s.Partial {
		a.add(Problem{Kind: "partial", Severity: Warning, Title: "not everything could be read", Cause: why, Command: a.s.command("doctor")})
	}
	if _, err := a.s.State.Filter(); err != nil && a.s.State.Damaged[cluster.KeyProfile] == nil {
		a.add(Problem{
			Kind: "filter", Severity: Warning, Title: "the cluster's own filter is invalid: it leaves out no member", Cause: err.Error(),
			Command: a.s.command("cluster", "profile", "edit"),
		})
	}
}

// existence is whether the cluster that has members was created.
func (a *attention) existence() {
	if s := a.s.State; !s.Exists && s.Damaged[cluster.KeyProfile] == nil && len(s.Members(nil)) > 0 {
		a.add(Problem{
			Kind: "no_cluster", Severity: Critical, Title: fmt.Sprintf("cluster %s was never created", a.s.Cluster),
			Cause:   "hosts joined it, but the orchestrator decides nothing: stages, runs and rollouts wait until it is created",
			Command: commandLine("cluster", "init", a.s.Cluster),
		})
	}
}

// orchestration is whether the cluster is looked after.
func (a *attention) orchestration() {
	if !a.s.Orchestrated && len(a.s.State.Hosts) > 0 {
		a.add(Problem{
			Kind: "no_orchestrator", Severity: Critical, Title: "no orchestrator runs",
			Cause:   "no host is offered a grant, no run begins and no event occurs: start an agent with orchestrator { enabled = true }",
			Command: a.s.command("doctor"),
		})
	}
	if n := len(a.s.Cycles); n > 0 {
		if last := a.s.Cycles[n-1]; last.Outcome == orchestrator.OutcomeFailed {
			a.add(Problem{
				Kind: "orchestrator_failing", Severity: Critical, Title: "the orchestrator's last cycle failed", Cause: last.Error, Since: last.Start,
				Command: a.s.command("cluster", "report"),
			})
		}
	}
}

// budget is whether failed hosts use up the budget, so that nothing that disturbs begins.
func (a *attention) budget() {
	for _, f := range a.s.Members.Places.Failures() {
		a.add(Problem{
			Kind: "budget", Severity: Critical, Title: "failed hosts use up the budget", Cause: f.Cause, Since: f.Since, Command: a.s.command("cluster", "budget"),
		}, f.Nodes...)
	}
}

// rollout is what keeps the rollout from its end.
func (a *attention) rollout() {
	status, ok := a.s.status()
	if !ok || status.Over() {
		return
	}
	if status.Stopped != nil {
		p := Problem{
			Kind: "change_stopped", Severity: Critical, Title: "the rollout of " + status.Version + " is paused", Cause: status.Stopped.String(),
			Since: status.Stopped.Since, Command: a.s.command("update", "resume"),
		}
		failed := failedHosts(status)
		if len(failed) > 0 { // a resume accepts failures, so the cause comes first
			p.Command = a.s.command("update", "why", failed[0])
			p.Cause += fmt.Sprintf("; repair what failed, then 'jorc update retry HOST' (%s), then 'jorc update resume'", strings.Join(first(failed), ", "))
		}
		a.add(p, failed...)
	}
	if slices.Contains(status.Waits, "'jorc update promote'") {
		a.add(Problem{
			Kind: "change_approval", Severity: Warning, Title: "the rollout of " + status.Version + " waits for consent",
			Cause: status.StateText(), Since: status.Since, Command: a.s.command("update", "promote"),
		})
	}
	for _, f := range status.Failed {
		if a.s.reportsFailure(f.Node) {
			continue // it is among the states
		}
		a.add(Problem{
			Kind: "change_failed", Severity: Critical, Title: f.Node + " failed in the rollout of " + status.Version, Cause: f.Reason, Since: f.Since,
			Command: a.s.command("update", "why", f.Node),
		}, f.Node)
	}
}

func failedHosts(status rollout.Status) (hosts []string) {
	for _, f := range status.Failed {
		hosts = append(hosts, f.Node)
	}
	return hosts
}

// reportsFailure reports whether a state of the host is failed.
func (s *Snapshot) reportsFailure(node string) bool {
	h := s.State.Hosts[node]
	if h == nil {
		return false
	}
	for _, c := range h.Report.States {
		if c.State == cluster.StateFailed {
			return true
		}
	}
	return false
}

// states are the ones that hosts report as failed or doubtful.
func (a *attention) states() {
	all := a.s.State.FailedStates(true)
	slices.SortFunc(all, func(a, b cluster.Failure) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Name, b.Name))
	})
	for _, f := range all {
		p := Problem{
			Kind: "failed", Severity: Critical, Title: fmt.Sprintf("%s: %s failed", f.Host, f.Name), Cause: cluster.Brief(f.Detail), Since: f.Since,
			Command: a.s.command("update", "why", f.Host),
		}
		if f.State == cluster.FailureSuspect {
			p.Kind, p.Severity, p.Title, p.Cause = "suspect", Warning, fmt.Sprintf("%s: %s is suspect", f.Host, f.Name), f.Detail
		}
		a.add(p, f.Host)
	}
}

// hosts are members that are down, critical or in maintenance.
func (a *attention) hosts() {
	for _, node := range a.s.State.Nodes() {
		h := a.s.State.Hosts[node]
		if !h.Reported && h.Datacenter == "" {
			continue // a machine without a host
		}
		p := Problem{Severity: Critical, Command: a.s.command("update", "why", node)}
		var since time.Time
		if v, ok := a.s.Times[node]; ok && v.Life == h.Condition.Liveness {
			since = v.LifeSince
		}
		if p.Kind, p.Title, p.Cause = liveness(node, h); p.Kind != "" {
			p.Since = since
			a.add(p, node)
			continue
		}
		if v, ok := a.s.Times[node]; ok && v.Health == h.Condition.Health {
			since = v.HealthSince
		}
		switch {
		case len(h.Failing) > 0:
			var checks []string
			for _, c := range h.Failing {
				checks = append(checks, cmp.Or(c.ServiceName, "host")+": "+c.CheckID)
			}
			p.Kind, p.Title, p.Cause, p.Since = "critical", node+": checks are critical", strings.Join(checks[:min(len(checks), mostNames)], ", "), since
		case h.Condition.Maintenance == cluster.MaintenanceForeign:
			p.Kind, p.Severity, p.Title, p.Since = "maintenance", Warning, node+" is in maintenance", since
			p.Cause = "an operator or another program has put it into maintenance"
		default:
			continue
		}
		a.add(p, node)
	}
}

func liveness(node string, h *cluster.Host) (kind, title, cause string) {
	c := h.Condition
	switch {
	case c.Liveness == cluster.LivenessDown:
		return "down", node + " is down", "gossip does not reach it"
	case c.Liveness == cluster.LivenessAbsent:
		return "down", node + " is absent", "it is not in Consul's catalog"
	case c.AgentCheck() == cluster.SignalFailing:
		return "agent_down", node + ": its jorc agent is down", "the check of its agent fails"
	}
	return "", "", ""
}

// templates are the ones that failed, are stale or wait longer than usual, a problem for each host.
func (a *attention) templates() {
	for _, node := range a.s.State.Nodes() {
		all, more := a.s.State.Hosts[node].Report.TemplateProblems()
		for _, state := range []string{cluster.TemplateFailed, cluster.TemplateStale, cluster.TemplateWaiting} {
			of := slices.DeleteFunc(slices.Clone(all), func(p cluster.TemplateProblem) bool { return p.State != state })
			if len(of) == 0 {
				continue
			}
			p := Problem{Kind: "template_failed", Severity: Critical, Since: of[0].Since, Cause: of[0].Detail, Command: a.s.command("update", "why", node)}
			what := "failed"
			switch state {
			case cluster.TemplateStale:
				p.Kind, what = "template_stale", "is stale: its file stays as it was, and data can no longer be read"
			case cluster.TemplateWaiting:
				p.Kind, p.Severity, what = "template_waiting", Warning, "waits longer than usual"
			}
			p.Title = fmt.Sprintf("%s: template %s %s", node, of[0].Name, what)
			if others := len(of) - 1; others > 0 || more > 0 {
				p.Cause += fmt.Sprintf("; other templates of the host with problems: %d", others+more)
			}
			a.add(p, node)
		}
	}
}

// expiry is what ends soon, has ended or cannot be read: a problem for each, with all hosts that
// have the same.
func (a *attention) expiry() {
	hosts := map[cluster.Expiring][]string{}
	for _, node := range a.s.State.Nodes() {
		for _, e := range a.s.State.Hosts[node].Report.EndsSoon() {
			hosts[e] = append(hosts[e], node)
		}
	}
	for _, e := range slices.SortedFunc(maps.Keys(hosts), func(a, b cluster.Expiring) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}) {
		p := Problem{Kind: "expiry", Severity: Critical, Title: e.Kind + " " + e.Name + " cannot be read"}
		p.Cause = "its end is not known: correct the setting or the file"
		switch at := e.Until.Format(time.RFC3339); {
		case e.Until.IsZero():
		case !a.s.Now.Before(e.Until):
			p.Title, p.Cause, p.Since = e.Kind+" "+e.Name+" has ended", "it was valid until "+at+": replace it", e.Until
		default:
			p.Severity, p.Title, p.Cause = Warning, e.Kind+" "+e.Name+" ends soon", "it is valid until "+at+": replace it"
		}
		if named := hosts[e]; len(named) == 1 {
			p.Title = named[0] + ": " + p.Title
		}
		a.add(p, hosts[e]...)
	}
}

// recently is for how long a run that failed needs attention.
const recently = 24 * time.Hour

// runs are the ones that failed lately, wait for consent, or do not continue.
func (a *attention) runs() {
	for _, r := range a.s.AllRuns {
		r.Explain(a.s.State.Control)
		p := Problem{Severity: Warning, Since: r.Created, Cause: r.Why}
		switch {
		case r.State == runs.Failed && a.s.Now.Sub(r.Ended) < recently:
			p.Kind, p.Severity, p.Since = "change_failed", Critical, r.Ended
			p.Title = fmt.Sprintf("run %s of %s failed on %d of %d members", r.ID, r.Request.Workflow, r.Counts.Failed+r.Counts.Lost, r.Counts.Members)
			p.Command = a.s.command("cluster", "logs", r.ID)
		case r.State == runs.NeedsApproval:
			p.Kind, p.Title, p.Cause = "change_approval", fmt.Sprintf("run %s of %s waits for approval", r.ID, r.Request.Workflow), strings.TrimSpace("asked for by "+r.By)
			p.Command = a.s.command("cluster", "approve", r.ID)
		case !r.State.Ended() && r.Why != "":
			p.Kind, p.Title = "change_waits", fmt.Sprintf("run %s of %s waits", r.ID, r.Request.Workflow)
			p.Command = a.s.command("cluster", "runs", r.ID)
		default:
			continue
		}
		a.add(p)
	}
}

// Bounds of waits for which nothing is known of how long others took.
const (
	longGrant = 30 * time.Minute
	longSlot  = 30 * time.Minute
	leastLong = 5 * time.Minute // what is shorter is never long
	timesLong = 3               // as long as the median of the others
)

// waits are hosts that work, or wait for a slot, for longer than usual.
func (a *attention) waits() {
	if status, ok := a.s.status(); ok && !status.Over() {
		usual := usualTime(a.s.Members.Members, status.Version, longGrant)
		for _, g := range status.Grants {
			if took := a.s.Now.Sub(g.Since); g.State == cluster.GrantAccepted && took > usual && !a.s.reportsFailure(g.Node) {
				a.add(Problem{
					Kind: "slow", Severity: Warning, Title: g.Node + " takes longer than usual", Since: g.Since,
					Cause:   fmt.Sprintf("it has its grant for %s; %s is usual at most", took.Round(time.Second), usual.Round(time.Second)),
					Command: a.s.command("update", "why", g.Node),
				}, g.Node)
			}
		}
	}
	for _, g := range a.s.Groups {
		for _, w := range g.Queue {
			if took := a.s.Now.Sub(w.Since); !w.Since.IsZero() && took > longSlot {
				a.add(Problem{
					Kind: "slow", Severity: Warning, Title: fmt.Sprintf("%s waits for a slot of %s", w.Node, g.Group), Since: w.Since,
					Cause: holdersText(g), Command: a.s.command("cluster", "slots", g.Group),
				}, w.Node)
			}
		}
	}
}

func holdersText(g slots.View) string {
	var holders []string
	for _, h := range g.Holders[:min(len(g.Holders), mostNames)] {
		holders = append(holders, h.Node+" since "+h.Since.UTC().Format(time.RFC3339))
	}
	if len(holders) == 0 {
		return "no process holds one"
	}
	return "held by " + strings.Join(holders, ", ")
}

// usualTime is the longest that a host usually needs for version, from its grant to
// its arrival: three times the median of the ones that have arrived, or otherwise.
func usualTime(members []rollout.Member, version string, otherwise time.Duration) time.Duration {
	var took []time.Duration
	for _, m := range members {
		if a := m.Answer; m.Version == version && a.Tag == version && !a.Since.IsZero() && m.Arrived.After(a.Since) {
			took = append(took, m.Arrived.Sub(a.Since))
		}
	}
	if len(took) == 0 {
		return otherwise
	}
	slices.Sort(took)
	return max(leastLong, timesLong*took[len(took)/2])
}

// leadership is what is missing of leaders, and members that wait for each other.
func (a *attention) leadership() {
	if n := a.s.State.Leaders.Vacancies(); n > 0 && a.s.State.Exists && len(a.s.State.Hosts) > 0 {
		a.add(Problem{
			Kind: "vacancy", Severity: Warning, Title: fmt.Sprintf("%d of %d places of leaders are empty", n, a.s.State.Leaders.Count),
			Cause: "no eligible member was elected", Command: a.s.command("cluster", "leader", "--elect"),
		})
	}
	g := a.s.derived.graph()
	for _, cycle := range g.Cycles {
		a.add(Problem{
			Kind: "stuck", Severity: Critical, Title: "members wait for each other without end", Cause: g.CycleText(cycle),
			Command: a.s.command("cluster", "deps", "--check"),
		}, cycle[:len(cycle)-1]...)
	}
}
