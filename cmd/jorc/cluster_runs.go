package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/runs"
)

func clusterRunsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "runs", Usage: "list runs, or show one with its members", ArgsUsage: "[ID]",
		Description: "The newest come first. Runs that have ended are kept for 30 days, at most 100 of them.",
		Action:      env.showRuns,
	}
}

func (e *environment) showRuns(c *cli.Context) error {
	id, err := optional(c)
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
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

// withoutMembers is the reason why no member has a part in a run yet, or had one.
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
	cl, err := e.existing(c, "")
	if err != nil {
		return nil, err
	}
	return runs.New(cl.Store()), nil
}

func runLogsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the last output of a run's tasks", ArgsUsage: "ID [NODE]",
		Description: "The end of the output (of a failed task at most 4 KB, otherwise 1 KB), and where the full log is if there is a log store; " +
			"without NODE of all members that have ended or wait. Values of params, environment variables and tokens are left out. " +
			"On the node itself 'jorc workflow logs run-ID' prints everything.",
		Action: env.runLogs,
	}
}

// runLog is what one member left.
type runLog struct {
	Node     string     `json:"node"`
	State    runs.State `json:"state"`
	Task     string     `json:"task"`
	ExitCode int        `json:"exit_code"`
	Why      string     `json:"why"`
	Tail     string     `json:"tail"`
	LogURL   string     `json:"log_url"`
}

func (e *environment) runLogs(c *cli.Context) error {
	args := arguments(c)
	if len(args) < 1 || len(args) > 2 {
		return usagef(c, "missing argument ID")
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	r, err := e.runs(c)
	if err != nil {
		return err
	}
	d, err := r.Show(c.Context, args[0])
	if err != nil {
		return wrongID(c, err)
	}
	var tails map[string]string
	if len(args) == 1 {
		if tails, err = r.Tails(c.Context, d.ID); err != nil {
			return err
		}
	}
	logs, found := []runLog{}, false
	for _, m := range d.Members {
		if len(args) == 2 && m.Node != args[1] {
			continue
		}
		found = true
		tail := tails[m.Node]
		if len(args) == 2 {
			if tail, err = r.Tail(c.Context, d.ID, m.Node); err != nil {
				return err
			}
		}
		if len(args) == 2 || tail != "" || m.LogURL != "" || m.Why != "" || m.State.Ended() {
			logs = append(logs, runLog{m.Node, m.State, m.Task, m.ExitCode, m.Why, tail, m.LogURL})
		}
	}
	if !found && len(args) == 2 {
		cl, err := e.cluster(c, "")
		if err == nil {
			err = cl.CheckHost(c.Context, args[1])
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("run %q: node %q has no part in it: 'jorc cluster runs %s' lists who has", d.ID, args[1], d.ID)
	}
	for _, l := range logs {
		if len(args) == 2 && l.Tail == "" && l.LogURL == "" && l.State != runs.Pending {
			fmt.Fprintf(c.App.ErrWriter, "jorc: no output is here; 'jorc workflow logs run-%s' on %s prints the log\n", d.ID, printable(l.Node))
		}
	}
	if format == formatJSON {
		return e.writeJSON(c.App.Writer, logs)
	}
	for _, l := range logs {
		fmt.Fprintf(c.App.Writer, "%s: %s%s\n", l.Node, l.State, after(": ", printable(l.Why)))
		if l.LogURL != "" {
			fmt.Fprintf(c.App.Writer, "  full log: %s\n", printable(l.LogURL))
		}
		for line := range strings.Lines(l.Tail) {
			fmt.Fprintf(c.App.Writer, "  %s\n", printable(strings.TrimRight(line, "\r\n")))
		}
	}
	return nil
}

// after is text behind a mark, or nothing.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

func approveCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "approve", Usage: "approve a run that needs approval", ArgsUsage: "ID",
		Description: "Repeating it changes nothing. A run that was cancelled stays so, and the exit code is 4.",
		Action:      env.changeRun("it no longer needs approval", approveRun),
	}
}

func cancelCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "end a run", ArgsUsage: "ID",
		Description: "Members that have not started do not start; the others end after the task that is running, or at once with --kill. " +
			"Repeating it changes nothing. A run of a rule would come back: it ends with its rule, and the exit code is 4.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "kill", Usage: "also end running tasks: SIGTERM, then SIGKILL after their kill_grace", DisableDefaultText: true},
		},
		Action: env.changeRun("it has ended, or was cancelled already", cancelRun),
	}
}

func approveRun(c *cli.Context, r *runs.Runs, id, by string) (runs.Run, bool, error) {
	return r.Approve(c.Context, id, by)
}

func cancelRun(c *cli.Context, r *runs.Runs, id, by string) (runs.Run, bool, error) {
	return r.Cancel(c.Context, id, by, c.Bool("kill"))
}

// changedRun is the answer of what changes a run.
type changedRun struct {
	ID      string     `json:"id"`
	State   runs.State `json:"state"`
	Changed bool       `json:"changed"`
}

// changeRun is an action on one run; already is said when there was nothing to
// change.
func (e *environment) changeRun(already string, change func(c *cli.Context, r *runs.Runs, id, by string) (runs.Run, bool, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		args := arguments(c)
		if len(args) != 1 {
			return usagef(c, "missing argument ID")
		}
		if _, err := e.format(c); err != nil {
			return err
		}
		r, err := e.runs(c)
		if err != nil {
			return err
		}
		by, err := e.author(c)
		if err != nil {
			return err
		}
		run, changed, err := change(c, r, args[0], by)
		if errors.Is(err, runs.ErrState) {
			return &exitError{code: exitConflict, err: err}
		}
		if err != nil {
			return wrongID(c, err)
		}
		if !changed {
			fmt.Fprintf(c.App.ErrWriter, "jorc: run %q: %s; nothing was changed\n", args[0], already)
		}
		l := listing{columns: []string{"id", "state"}, rows: [][]string{{args[0], string(run.State)}}}
		return e.print(c, l, changedRun{args[0], run.State, changed})
	}
}

// wrongID makes an invalid ID wrong usage.
func wrongID(c *cli.Context, err error) error {
	if errors.Is(err, runs.ErrInvalid) {
		return usagef(c, "%v", err)
	}
	return err
}
