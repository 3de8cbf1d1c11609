package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// Part is one part of a host, as its agent sees it: a line of `jorc status`.
type Part struct {
	What, Name, State string
	Since             time.Time
	Detail            []string
	Trouble           bool // an operator is needed
}

// Row returns the cells of the line: what, name, state, since, detail.
func (p Part) Row() []string {
	since := "-"
	if !p.Since.IsZero() {
		since = p.Since.UTC().Format(time.RFC3339)
	}
	var detail []string
	for _, d := range p.Detail {
		if d != "" {
			detail = append(detail, d)
		}
	}
	return []string{p.What, p.Name, p.State, since, cmp.Or(strings.Join(detail, "; "), "-")}
}

// Parts are what an agent reports of its host.
func Parts(s Status) []Part {
	agent := Part{What: "agent", Name: cmp.Or(s.Node, "-"), State: "ready", Since: s.Started}
	switch {
	case s.Unhealthy != "", s.Rival != "", s.Resting != "":
		agent.State, agent.Trouble, agent.Detail = "failed", true, []string{s.Unhealthy, s.Rival, s.Resting}
	case s.Held != "":
		agent.State, agent.Detail = "held", []string{s.Held}
	case !s.Ready:
		agent.State, agent.Detail = "not ready", s.NotReady
	}
	parts := []Part{agent}
	if c := s.Consul; !c.Connected {
		parts = append(parts, Part{What: "consul", Name: c.Address, State: "unreachable", Since: c.UnreachableSince, Trouble: true})
	}
	if c := s.Convergence; c != nil {
		failed := c.Phase == "failed" || c.Unorchestrated
		detail := append([]string{c.Detail}, c.Trouble...)
		if c.Phase == "failed" && c.Why != c.Detail {
			detail = append([]string{c.Why}, detail...)
		}
		if len(c.Missing) > 0 {
			detail = append(detail, "waits for "+strings.Join(c.Missing, ", "))
		}
		parts = append(parts, Part{"convergence", cmp.Or(c.Desired, c.Version, "-"), c.Phase, c.Since, detail, failed})
	}
	if g := s.Grant; g != nil {
		parts = append(parts, Part{"grant", g.Version, g.State, g.Since, []string{g.Reason}, false})
	}
	if l := s.Lease; l != nil {
		parts = append(parts, Part{"lease", l.ID, l.State, l.Since, []string{l.Trouble, l.Reason, l.Waits}, l.Trouble != ""})
	}
	for i := range s.Stages {
		parts = append(parts, stagePart(&s.Stages[i]))
	}
	for i := range s.Services {
		parts = append(parts, servicePart(&s.Services[i]))
	}
	for i := range s.Templates {
		t := &s.Templates[i]
		p := Part{What: "template", Name: t.Name, State: t.State, Since: t.Since, Trouble: t.State == TemplateFailed || t.State == TemplateStale}
		switch t.State {
		case TemplateFailed:
			p.Detail = []string{t.Error}
		case TemplateStale:
			p.Detail = t.Stale
		case TemplateWaiting:
			p.Detail = t.Waiting
		case TemplateHeld:
			p.Detail = t.Held
		}
		p.Detail = append(p.Detail, t.Edited)
		parts = append(parts, p)
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		parts = append(parts, Part{"process", p.Name, p.State, p.Since, append([]string{p.Error}, p.Waiting...), p.State == ProcessFailed})
	}
	for i := range s.Triggers {
		switch t := &s.Triggers[i]; {
		case t.Error != "":
			parts = append(parts, Part{"trigger", t.Trigger, "unknown", time.Time{}, []string{t.Error}, true})
		case t.Last != nil && t.Last.Why != "":
			parts = append(parts, Part{"trigger", t.Trigger, t.Last.State, t.Last.At, []string{t.Last.Why}, true})
		case t.Running != "":
			parts = append(parts, Part{"trigger", t.Trigger, "running", time.Time{}, []string{"job " + t.Running}, false})
		}
	}
	for i := range s.Schedules {
		if v := &s.Schedules[i]; v.Error != "" && !unknownTrigger(s, v.Trigger) {
			parts = append(parts, Part{"trigger", v.Trigger, "unknown", time.Time{}, []string{v.Error}, true})
		}
	}
	for i := range s.Expiry {
		if e := &s.Expiry[i]; e.Error != "" {
			parts = append(parts, Part{e.Kind, e.Name, "unreadable", time.Time{}, []string{e.Error}, true})
		} else if e.Soon {
			parts = append(parts, Part{e.Kind, e.Name, "ends soon", e.From, []string{"valid until " + e.Until.UTC().Format(time.RFC3339)}, true})
		}
	}
	for i := range s.Orchestrators {
		if o := &s.Orchestrators[i]; o.Active {
			p := Part{"orchestrator", o.Cluster, "active", o.Since, []string{o.Idle}, false}
			if o.Fails >= tooManyFails {
				p.State, p.Trouble, p.Detail = "failed", true, []string{fmt.Sprintf("the last %d cycles failed", o.Fails), o.Error}
			}
			parts = append(parts, p)
		}
	}
	if !s.Reload.OK {
		parts = append(parts, Part{"reload", "-", "failed", s.Reload.At, []string{s.Reload.Error}, true})
	}
	return parts
}

// unknownTrigger reports whether the state of a trigger is not known.
func unknownTrigger(s Status, name string) bool {
	return slices.ContainsFunc(s.Triggers, func(t Trigger) bool { return t.Trigger == name && t.Error != "" })
}

// stagePart is a stage in which something waits, runs, or failed.
func stagePart(t *Stage) Part {
	p := Part{"stage", t.Stage, t.State, t.Since, []string{t.Reason}, t.Failed || t.Unorchestrated}
	if len(t.Changed) > 0 {
		p.Detail = append(p.Detail, "changed: "+strings.Join(t.Changed, ", "))
	}
	if t.Unorchestrated {
		p.Detail = append(p.Detail, "no orchestrator runs: no host is offered a grant")
	}
	return p
}

// servicePart is a service with those of its checks that do not pass.
func servicePart(s *Service) Part {
	p := Part{What: "service", Name: s.ID, State: "registered", Since: s.Since}
	if !s.Registered {
		p.State, p.Detail, p.Trouble = "not registered", []string{s.Error}, true
	}
	for _, c := range s.Checks {
		if c.State == CheckPassing || c.State == CheckUnknown {
			continue
		}
		p.State = c.State
		p.Trouble = p.Trouble || c.State == CheckCritical
		p.Detail = append(p.Detail, fmt.Sprintf("check %s is %s: %s", c.Name, c.State, cmp.Or(c.Error, c.Output)))
	}
	return p
}

// maxTroubles is how many parts in trouble a summary names.
const maxTroubles = 3

// Summary is what an agent does and how its host is, in one line without values and errors,
// and whether it is ready.
func Summary(s Status) (summary string, ready bool) {
	s = s.completed()
	var parts, troubles []string
	for _, p := range Parts(s) {
		switch {
		case p.What == "agent":
			parts = append(parts, p.State)
		case p.What == "convergence":
			parts = append(parts, strings.TrimPrefix(p.Name+" ", "- ")+p.State)
		case p.Trouble:
			troubles = append(troubles, fmt.Sprintf("%s %s%s", p.What, strings.TrimPrefix(p.Name+" ", "- "), p.State))
		}
	}
	var counts []string
	for _, c := range []struct {
		n         int
		one, many string
	}{{len(s.Services), "service", "services"}, {len(s.Templates), "template", "templates"}, {len(s.Processes), "process", "processes"}} {
		if c.n > 0 {
			counts = append(counts, text.Count(c.n, c.one, c.many))
		}
	}
	if len(counts) > 0 {
		parts = append(parts, strings.Join(counts, ", "))
	}
	return text.Line(strings.Join(append(parts, text.Lines(troubles, maxTroubles)...), "; "), maxSummary), s.Ready
}

// maxSummary is how many bytes a summary has at most: a few lines of a terminal.
const maxSummary = 300
