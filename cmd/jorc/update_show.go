package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/rollout"
)

func showRolloutCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "show the rollout: phase, counts, hosts out of service, failures, what it waits for",
		Description: "Exits 1 when nothing was triggered.",
		Action:      env.showRollout,
	}
}

// shownRollout is the answer of `update show`.
type shownRollout struct {
	rollout.Status
	Orchestrated bool `json:"orchestrated"` // an agent holds the orchestrator's lock
}

func (e *environment) showRollout(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	rollouts, closeClient, err := e.printedRollouts(c)
	if err != nil {
		return err
	}
	defer closeClient()
	status, err := rollouts.Show(c.Context)
	if err != nil {
		return err
	}
	orchestrated, err := rollouts.Orchestrated(c.Context)
	if err != nil {
		return err
	}
	if !orchestrated && !status.Over() && status.Paced() {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", noOrchestrator)
	}
	return e.print(c, listing{columns: []string{"what", "value"}, rows: rolloutRows(status)}, shownRollout{status, orchestrated})
}

// rolloutRows is a rollout for people.
func rolloutRows(s rollout.Status) [][]string {
	var rows [][]string
	add := func(what, format string, args ...any) {
		rows = append(rows, []string{what, fmt.Sprintf(format, args...)})
	}
	add("version", "%s", s.Version)
	if s.Previous != "" {
		add("previous", "%s", s.Previous)
	}
	add("phase", "%s since %s", s.StateText(), s.Since.UTC().Format(time.RFC3339))
	if s.Stopped != nil {
		add(s.State, "%s", *s.Stopped)
	}
	if r := s.RollbackOf; r != nil {
		add("rolled back", "%s: %s", r.Version, r.Reason)
	}
	add("policy", "%s", policyText(s.Policy))
	n := s.Now
	add("members", "%d: %d done, %d working, %d pending, %d failed, %d down", n.Members, n.Done, n.Working, n.Pending, n.Failed, n.Down)
	if n.GivenUp > 0 {
		add("given up", "%d members", n.GivenUp)
	}
	if s.Paced() {
		add("admitted", "%d, at most %d out of service", s.Admitted, s.Limit)
	}
	for _, g := range s.Grants {
		add("grant", "%s: %s of %s since %s%s", g.Node, g.State, g.Version, g.Since.UTC().Format(time.RFC3339), after(": ", g.Reason))
	}
	for _, f := range s.Failed {
		keeps := ""
		if f.Granted {
			keeps = " (it keeps its grant and stays out of service until it succeeds; 'jorc update give-up' frees its place)"
		}
		add("failed", "%s since %s: %s%s", f.Node, f.Since.UTC().Format(time.RFC3339), f.Reason, keeps)
	}
	if len(s.Down) > 0 {
		add("down", "%s", more(s.Down, n.Down))
	}
	for _, o := range s.Out {
		add("out without a grant", "%s: %s", more(o.Nodes, o.Count), o.Reason)
	}
	for _, o := range s.Apart {
		add("takes no part", "%s: %s", more(o.Nodes, o.Count), o.Reason)
	}
	if len(s.Strangers) > 0 {
		add("not members", "%s: have a grant, which does not count; 'jorc update give-up HOST' ends it", more(s.Strangers, s.StrangerCount))
	}
	for _, w := range s.Waits {
		add("waits for", "%s", w)
	}
	return rows
}

// more lists names of count.
func more(names []string, count int) string {
	text := strings.Join(names, ", ")
	if count > len(names) {
		text += fmt.Sprintf(" and %d more", count-len(names))
	}
	return text
}

// policyText is a policy as flags would say it.
func policyText(p rollout.Policy) string {
	if p.Plain() {
		return "all at once"
	}
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(p.Canary > 0, "canary %d", p.Canary)
	add(len(p.Batches) > 0, "batches %s", joined(p.Batches))
	add(p.MaxParallel.N > 0, "max-parallel %s", p.MaxParallel)
	add(true, "max-failures %d", p.MaxFailures)
	add(p.MinHealthy > 0, "min-healthy %s", p.MinHealthy)
	add(p.NodeDeadline > 0, "node-deadline %s", p.NodeDeadline)
	add(p.ProgressDeadline > 0, "progress-deadline %s", p.ProgressDeadline)
	add(p.ZoneByZone, "zone-by-zone")
	add(len(p.Order) > 0, "order %s", joined(p.Order))
	add(p.OnFailure != "", "on-failure %s", p.OnFailure)
	for _, w := range p.Windows {
		add(true, "window %q", w)
	}
	return strings.Join(parts, ", ")
}

func joined[T fmt.Stringer](all []T) string {
	var texts []string
	for _, v := range all {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ",")
}
