package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/runs"
)

func clusterRunsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "runs", Usage: "list the runs, or say how one stands on each member", ArgsUsage: "[ID]",
		Description: "The newest come first. Runs that have ended are kept for 30 days, at most 100 of them.",
		Action:      env.showRuns,
	}
}

func (e *environment) showRuns(c *cli.Context) error {
	id, err := optional(c)
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	if id != "" {
		return e.showRun(c, cl, id)
	}
	all, bad, err := runs.New(cl.Store()).List(c.Context)
	if err != nil {
		return err
	}
	open := []*runs.Run{}
	for i := range all {
		open = append(open, &all[i])
	}
	if err := explain(c.Context, cl, open...); err != nil {
		return err
	}
	for _, err := range bad {
		fmt.Fprintf(c.App.ErrWriter, "jorc: left out: %v\n", err)
	}
	l := listing{columns: []string{"id", "workflow", "for", "state", "done", "created", "by", "why"}, states: []string{"state"}}
	for i := range all {
		x := &all[i]
		done := fmt.Sprintf("%d/%d", x.Counts.Done, x.Counts.Members)
		l.rows = append(l.rows, []string{x.ID, x.Request.Workflow, audience(x), string(x.State), done, x.Created.Format(time.RFC3339), x.By, x.Why})
	}
	return e.print(c, l, all)
}

// audience says in words who a run is for.
func audience(r *runs.Run) string {
	q := r.Request
	text := "all"
	switch {
	case q.OnManager:
		return "a manager"
	case q.Role != "" && q.Filter != "":
		text = "role " + q.Role + ", " + q.Filter
	case q.Role != "":
		text = "role " + q.Role
	case q.Filter != "":
		text = q.Filter
	}
	if r.Rule != nil {
		text += " (rule " + r.Rule.Name + ")"
	}
	return text
}

// explain adds why runs do not continue. It reads the cluster's control only if one
// has not ended.
func explain(ctx context.Context, cl *cluster.Cluster, all ...*runs.Run) error {
	if !slices.ContainsFunc(all, func(r *runs.Run) bool { return !r.State.Ended() }) {
		return nil
	}
	control, err := cl.Control(ctx)
	if errors.Is(err, consul.ErrDenied) {
		return nil
	}
	for _, r := range all {
		r.Explain(control)
	}
	return err
}

func (e *environment) showRun(c *cli.Context, cl *cluster.Cluster, id string) error {
	d, err := runs.New(cl.Store()).Show(c.Context, id)
	if err != nil {
		return wrongID(c, err)
	}
	if err := explain(c.Context, cl, &d.Run); err != nil {
		return err
	}
	if len(d.Members) == 0 {
		fmt.Fprintf(c.App.ErrWriter, "jorc: run %s: %s%s\n", d.ID, d.State, withoutMembers(d.Run))
	}
	l := listing{columns: []string{"node", "state", "since", "task", "exit code", "why", "log"}, states: []string{"state"}}
	for _, m := range d.Members {
		row := []string{m.Node, string(m.State), "", m.Task, "", m.Why, m.LogURL}
		if len(m.History) > 0 {
			row[2] = sinceText(m.History[len(m.History)-1].At)
		}
		if m.Task != "" && m.State.Ended() {
			row[4] = strconv.Itoa(m.ExitCode)
		}
		l.rows = append(l.rows, row)
	}
	return e.print(c, l, d)
}

// withoutMembers says why no member has a part in a run yet, or had one.
func withoutMembers(r runs.Run) string {
	switch {
	case r.Why != "":
		return ": " + r.Why
	case r.State == runs.NeedsApproval:
		return fmt.Sprintf(": 'jorc cluster approve %s' lets it begin", r.ID)
	case r.State == runs.Pending:
		return ": its members are chosen when it begins"
	}
	return ""
}

// runs are the runs of the cluster that flags and environment name.
func (e *environment) runs(c *cli.Context) (*runs.Runs, error) {
	cl, err := e.cluster(c, "")
	if err != nil {
		return nil, err
	}
	return runs.New(cl.Store()), nil
}
