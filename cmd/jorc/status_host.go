package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/web"
)

// hostStatus prints how this host is, as its agent says.
func (e *environment) hostStatus(c *cli.Context) error {
	conf, err := e.config(c)
	if err != nil {
		return err
	}
	s, err := doctor.AgentStatus(c.Context, conf)
	if err != nil {
		return err
	}
	l := rowsOf("what,name,state*,since,detail")
	needed := false
	for _, part := range hostParts(s) {
		l.rows = append(l.rows, part.row())
		needed = needed || part.trouble
	}
	if err := e.print(c, l, s); err != nil {
		return err
	}
	return answerOf(!needed)
}

// hostPart is one line of `jorc status`.
type hostPart struct {
	what, name, state string
	since             time.Time
	detail            []string
	trouble           bool // an operator is needed
}

func (p hostPart) row() []string {
	since := "-"
	if !p.since.IsZero() {
		since = p.since.UTC().Format(time.RFC3339)
	}
	var detail []string
	for _, d := range p.detail {
		if d != "" {
			detail = append(detail, d)
		}
	}
	return []string{p.what, p.name, p.state, since, cmp.Or(strings.Join(detail, "; "), "-")}
}

// hostParts are what an agent reports of its host.
func hostParts(s web.Status) []hostPart {
	agent := hostPart{what: "agent", name: cmp.Or(s.Node, "-"), state: "ready", since: s.Started}
	switch {
	case s.Unhealthy != "", s.Rival != "", s.Resting != "":
		agent.state, agent.trouble, agent.detail = "failed", true, []string{s.Unhealthy, s.Rival, s.Resting}
	case s.Held != "":
		agent.state, agent.detail = "held", []string{s.Held}
	case !s.Ready:
		agent.state, agent.detail = "not ready", s.NotReady
	}
	parts := []hostPart{agent}
	if c := s.Consul; !c.Connected {
		parts = append(parts, hostPart{what: "consul", name: c.Address, state: "unreachable", since: c.UnreachableSince, trouble: true})
	}
	if c := s.Convergence; c != nil {
		failed := c.Phase == "failed"
		detail := append([]string{c.Detail}, c.Trouble...)
		if failed && c.Why != c.Detail {
			detail = append([]string{c.Why}, detail...)
		}
		if len(c.Missing) > 0 {
			detail = append(detail, "waits for "+strings.Join(c.Missing, ", "))
		}
		parts = append(parts, hostPart{"convergence", cmp.Or(c.Desired, c.Version, "-"), c.Phase, c.Since, detail, failed})
	}
	for i := range s.Services {
		parts = append(parts, servicePart(&s.Services[i]))
	}
	for i := range s.Templates {
		t := &s.Templates[i]
		p := hostPart{what: "template", name: t.Name, state: t.State, since: t.Since, trouble: t.State == web.TemplateFailed || t.State == web.TemplateStale}
		switch t.State {
		case web.TemplateFailed:
			p.detail = []string{t.Error}
		case web.TemplateStale:
			p.detail = t.Stale
		case web.TemplateWaiting:
			p.detail = t.Waiting
		case web.TemplateHeld:
			p.detail = t.Held
		}
		p.detail = append(p.detail, t.Edited)
		parts = append(parts, p)
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		parts = append(parts, hostPart{"process", p.Name, p.State, p.Since, append([]string{p.Error}, p.Waiting...), p.State == web.ProcessFailed})
	}
	for i := range s.Triggers {
		if t := &s.Triggers[i]; t.Last != nil && t.Last.Why != "" {
			parts = append(parts, hostPart{"trigger", t.Trigger, t.Last.State, t.Last.At, []string{t.Last.Why}, true})
		}
	}
	if !s.Reload.OK {
		parts = append(parts, hostPart{"reload", "-", "failed", s.Reload.At, []string{s.Reload.Error}, true})
	}
	return parts
}

// servicePart is a service with those of its checks that do not pass.
func servicePart(s *web.Service) hostPart {
	p := hostPart{what: "service", name: s.ID, state: "registered", since: s.Since}
	if !s.Registered {
		p.state, p.detail, p.trouble = "not registered", []string{s.Error}, true
	}
	for _, c := range s.Checks {
		if c.State == web.CheckPassing || c.State == web.CheckUnknown {
			continue
		}
		p.state = c.State
		p.trouble = p.trouble || c.State == web.CheckCritical
		p.detail = append(p.detail, fmt.Sprintf("check %s is %s: %s", c.Name, c.State, cmp.Or(c.Error, c.Output)))
	}
	return p
}
