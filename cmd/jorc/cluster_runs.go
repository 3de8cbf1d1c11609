package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/terminal"
	"github.com/jorc/jorc/internal/text"
)

// runsCommands are those of "jorc cluster" that are about runs, and wait.
func runsCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		clusterRunCommand(env), clusterRunsCommand(env), approveCommand(env), cancelCommand(env), runLogsCommand(env), clusterWaitCommand(env),
	}
}

func clusterRunCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run a workflow on members", ArgsUsage: "[WORKFLOW]",
		Description: "The workflow must be defined on the members: exits 1, and asks for no run, when a member's record says that it is not; " +
			"--skip-undefined leaves such members out. Prints the run's id. Members are those that the cluster's " +
			"own filter, --filter, --role and --node match when the run begins, managers left out; exits 1 when there are none now. " +
			"--canary, --batches, --max-failures, --min-healthy, --zone-by-zone and --order mean what they mean to 'jorc update trigger'. " +
			"A workflow with disturbs = true takes its hosts out of service, as --disturbs does. " +
			"WORKFLOW may be left out with --retry-of: it and the params are those of that run unless they are given. " +
			"A member, or a manager, on which a task was interrupted continues with that task, unless --from-start, another workflow or other params are given. " +
			"The same --id twice is one run; with anything else under it nothing is written, and the exit code is 4. " +
			"With --wait exits as 'jorc cluster wait --for run=ID' does.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "filter", Usage: "only members that `EXPR` matches"},
			&cli.StringFlag{Name: "role", Usage: "only members with `ROLE`"},
			&cli.StringSliceFlag{Name: "node", Usage: "only member `NODE`; may be repeated"},
			&cli.BoolFlag{Name: "on-manager", Usage: "once, on a manager or where the orchestrator is; its tasks may start runs", DisableDefaultText: true},
			&cli.BoolFlag{Name: "skip-undefined", Usage: "leave out members whose hosts do not define the workflow", DisableDefaultText: true},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the members, and whether they define the workflow, and write nothing", DisableDefaultText: true},
			&cli.StringFlag{Name: "max-parallel", Usage: "at most `N` members at the same time, or N%", DefaultText: "all"},
			&cli.IntFlag{Name: "canary", Usage: "`N` members come first, on their own", DefaultText: "none"},
			&cli.StringFlag{Name: "batches", Usage: "then so many members in all, one step after the other: `LIST` such as 10%,50%,100%"},
			&cli.IntFlag{Name: "max-failures", Usage: "begin on no further member when more than `N` failed or were lost", DefaultText: "0 with steps, otherwise no limit"},
			&cli.DurationFlag{Name: "min-healthy", Usage: "a member must be in service for `D` after the workflow before another takes its place", DefaultText: "0s"},
			&cli.BoolFlag{Name: "zone-by-zone", Usage: "finish one zone before the next", DisableDefaultText: true},
			&cli.StringFlag{Name: "order", Usage: "finish one `ROLE` before the next, such as db=1,web; =N is a limit of its own", DefaultText: "none"},
			&cli.BoolFlag{Name: "disturbs", Usage: "it takes members out of service: each is in maintenance meanwhile, within the budget of the cluster", DisableDefaultText: true},
			&cli.StringSliceFlag{Name: "window", Usage: "members begin only within `SPEC`, such as \"Mon-Fri 22:00-06:00 Europe/Berlin\"; may be repeated", DefaultText: "always"},
			duringFreezeFlag(), overBudgetFlag(),
			&cli.StringFlag{Name: "retry-of", Usage: "only members of run `RUN` that failed, were lost or did not start; on a manager if it was on one"},
			&cli.BoolFlag{Name: "from-start", Usage: "with --retry-of: run the whole workflow, not only what an interruption left", DisableDefaultText: true},
			&cli.StringSliceFlag{Name: "param", KeepSpace: true, Usage: "a param as `NAME=VALUE`, VALUE is JSON if it is valid JSON, otherwise text; may be repeated"},
			&cli.BoolFlag{Name: "string", Usage: "treat values of params as plain strings", DisableDefaultText: true},
			&cli.BoolFlag{Name: "yaml", Usage: "read values of params as YAML", DisableDefaultText: true},
			&cli.BoolFlag{Name: "needs-approval", Usage: "begin after 'jorc cluster approve ID'", DisableDefaultText: true},
			&cli.StringFlag{Name: "id", Usage: "`ID` of the run", DefaultText: "a new one"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the run's end", DisableDefaultText: true},
			&cli.DurationFlag{Name: "timeout", Usage: "with --wait: give up after `D`", DefaultText: "none"},
		},
		Action: env.runOnMembers,
	}
}

func (e *environment) runOnMembers(c *cli.Context) error {
	if c.IsSet("timeout") && (!c.Bool("wait") || c.Duration("timeout") < 0) {
		return usagef(c, "--timeout goes with --wait, and must not be negative")
	}
	if c.Bool("dry-run") && c.Bool("wait") {
		return usagef(c, "--dry-run and --wait cannot be combined")
	}
	cl, q, err := e.requestOf(c)
	if err != nil {
		return err
	}
	if c.Bool("skip-undefined") {
		q = q.SkipUndefined()
	}
	id := c.String("id")
	if !c.IsSet("id") {
		id = runs.NewID(time.Now())
	}
	if err := runs.CheckID(id); err != nil {
		return usagef(c, "%v", err)
	}
	if c.Bool("dry-run") {
		return e.dryRun(c, cl, id, q)
	}
	run, created, err := e.askFor(c, cl, id, q)
	if err != nil {
		return err
	}
	if !created {
		note(c, "run %q was asked for already; it is %s", id, run.State)
	}
	isJSON := e.format(c) == formatJSON
	if isJSON && !c.Bool("wait") {
		err = e.writeJSON(c.App.Writer, run)
	} else if !isJSON {
		_, err = fmt.Fprintln(c.App.Writer, id)
	}
	if err != nil {
		return fmt.Errorf("run %q was created, but its id could not be printed: %w", id, err)
	}
	if created && mayBeClosed(c.App.Writer) {
		note(c, "stdout is closed, or discards the answer: the id of the run is %s", printable(id))
	}
	if !run.State.Ended() {
		noteNoOrchestrator(c, cl)
	}
	if !c.Bool("wait") {
		return nil
	}
	_, err = e.await(c, cl, runs.Goal{Run: id}, nil)
	if !isJSON {
		return err
	}
	if d, showErr := cl.runs().Show(c.Context, id); showErr == nil {
		if writeErr := e.writeJSON(c.App.Writer, d); writeErr != nil {
			return fmt.Errorf("run %q: its outcome could not be printed: %w", id, errors.Join(writeErr, err))
		}
	}
	return err
}

// requestOf reads what a run is asked for, and on which cluster.
func (e *environment) requestOf(c *cli.Context) (*target, runs.Request, error) {
	params, err := paramsOf(c)
	if err != nil {
		return nil, runs.Request{}, err
	}
	q := runs.Request{
		Workflow: argument(c, 0), Params: params, Filter: c.String("filter"), Role: c.String("role"),
		Nodes: nodesOf(c), OnManager: c.Bool("on-manager"), Disturbs: c.Bool("disturbs"), NeedsApproval: c.Bool("needs-approval"), RetryOf: c.String("retry-of"), FromStart: c.Bool("from-start"),
	}
	if q.Exceptions, err = exceptionsOf(c); err != nil {
		return nil, q, err
	}
	if q.Limits, q.Windows, err = limitsOf(c); err != nil {
		return nil, q, err
	}
	switch {
	case q.Workflow == "" && q.RetryOf == "":
		return nil, q, usagef(c, "missing argument WORKFLOW")
	case c.IsSet("role") && q.Role == "":
		return nil, q, usagef(c, "--role must not be empty")
	case slices.Contains(q.Nodes, ""):
		return nil, q, usagef(c, "--node must not be empty")
	case q.OnManager && c.Bool("skip-undefined"):
		return nil, q, usagef(c, "--on-manager and --skip-undefined cannot be combined")
	case q.FromStart && q.RetryOf == "":
		return nil, q, usagef(c, "--from-start goes with --retry-of")
	case q.RetryOf != "" && q.OnManager:
		return nil, q, usagef(c, "--retry-of and --on-manager cannot be combined: the retry of a run on a manager is on a manager")
	}
	checked := q
	checked.Workflow = cmp.Or(q.Workflow, "of the run")
	switch err := checked.Check(); {
	case errors.As(err, new(*cluster.FilterError)):
		return nil, q, usagef(c, "--%v", err)
	case err != nil:
		return nil, q, usagef(c, "%v", err)
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return nil, q, err
	}
	for _, node := range q.Nodes {
		if err := cl.CheckHost(c.Context, node); err != nil {
			return nil, q, err
		}
	}
	if q.RetryOf != "" {
		q, err = retried(c, cl, q)
	}
	return cl, q, err
}

// retried is the request with what it leaves to the run that it retries.
func retried(c *cli.Context, cl *target, q runs.Request) (runs.Request, error) {
	of, err := cl.runs().Show(c.Context, q.RetryOf)
	if err == nil {
		q, err = of.Retry(q)
	}
	if errors.Is(err, runs.ErrState) {
		return q, &exitError{code: exitConflict, err: err}
	}
	return q, wrongID(c, err)
}

// nodesOf are the members that --node names, sorted; nil: all.
func nodesOf(c *cli.Context) []string {
	nodes := slices.Clone(c.StringSlice("node"))
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// limitsOf reads the limits of a run, and its windows.
func limitsOf(c *cli.Context) (l runs.Limits, windows []pace.Window, err error) {
	var p pace.Policy
	if err := parsePolicy(c, &p); err != nil {
		return l, nil, err
	}
	l = runs.Limits{
		MaxParallel: p.MaxParallel, Canary: c.Int("canary"), Batches: p.Batches, MinHealthy: pace.Duration(c.Duration("min-healthy")),
		ZoneByZone: c.Bool("zone-by-zone"), Order: p.Order,
	}
	if c.IsSet("max-failures") {
		most := c.Int("max-failures")
		l.MaxFailures = &most
	}
	if c.IsSet("canary") && l.Canary < 1 {
		return l, nil, usagef(c, "--canary must be at least 1")
	}
	return l, p.Windows, nil
}

// dryRun prints the members that a run would be for, and why it would be refused.
func (e *environment) dryRun(c *cli.Context, cl *target, id string, q runs.Request) error {
	t, err := cl.runs().Targets(c.Context, cl.Cluster, id, q)
	noteDamaged(c, t)
	if len(t.Members) == 0 {
		return err
	}
	if err == nil {
		note(c, "dry run: nothing was written; the run would be for %s", text.Count(len(t.Members), "member", "members"))
	}
	l := listing{columns: []string{"node", "workflow"}, states: []string{"workflow"}}
	for _, node := range t.Members {
		state := "defined"
		switch {
		case slices.Contains(t.Undefined, node):
			state = "not defined"
		case slices.Contains(t.Unknown, node):
			state = "unknown"
		}
		l.rows = append(l.rows, []string{node, state})
	}
	return errors.Join(e.print(c, l, t), err)
}

// noteDamaged names the members that a run leaves out because of their records.
func noteDamaged(c *cli.Context, t runs.Targets) {
	if len(t.Damaged) > 0 {
		note(c, "the run leaves out %s: the member record cannot be read; 'jorc cluster members' has the reason", text.Few(", ", t.Damaged, 5))
	}
}

// askFor asks for a run that some member matches.
func (e *environment) askFor(c *cli.Context, cl *target, id string, q runs.Request) (run runs.Run, created bool, err error) {
	t, err := cl.runs().Targets(c.Context, cl.Cluster, id, q)
	noteDamaged(c, t)
	if err != nil {
		return run, false, err
	}
	by, err := e.author(c)
	if err != nil {
		return run, false, err
	}
	return cl.runs().Ask(c.Context, id, q, by)
}

// noteNoOrchestrator warns if no orchestrator would carry out a run.
func noteNoOrchestrator(c *cli.Context, cl *target) {
	if there, err := cl.runs().Orchestrated(c.Context); err == nil && !there {
		note(c, "no orchestrator runs: the run begins when an agent with an orchestrator block is up")
	}
}

func clusterRunsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "runs", Usage: "list runs, or show one with its members", ArgsUsage: "[ID]",
		Description: "The newest come first. Runs that have ended are kept for 30 days, at most 100 of them.",
		Action:      env.onCluster(env.showRuns),
	}
}

func (e *environment) showRuns(c *cli.Context, cl *target) error {
	if id := argument(c, 0); id != "" {
		return e.showRun(c, cl, id)
	}
	all, err := allRuns(c, cl)
	if err != nil {
		return err
	}
	return e.print(c, listingOf("id,workflow,for,state*,done,created,by,why", all, func(x runs.Run) []string {
		done := fmt.Sprintf("%d/%d", x.Counts.Done, x.Counts.Members)
		return []string{x.ID, x.Request.Workflow, x.Audience(), string(x.State), done, when(x.Created), x.By, x.Why}
	}), all)
}

// allRuns reads all runs, with what they wait for.
func allRuns(c *cli.Context, cl *target) ([]runs.Run, error) {
	all, bad, err := cl.runs().List(c.Context)
	if err != nil {
		return nil, err
	}
	open := make([]*runs.Run, len(all))
	for i := range all {
		open[i] = &all[i]
	}
	if err := runs.Explain(c.Context, cl.Cluster, open...); err != nil {
		return nil, err
	}
	noteUnread(c, bad)
	return all, nil
}

// noteUnread names the documents that a list leaves out.
func noteUnread(c *cli.Context, bad []error) {
	for _, err := range bad {
		note(c, "left out: %v", err)
	}
}

func (e *environment) showRun(c *cli.Context, cl *target, id string) error {
	d, err := cl.runs().Show(c.Context, id)
	if err != nil {
		return wrongID(c, err)
	}
	if err := runs.Explain(c.Context, cl.Cluster, &d.Run); err != nil {
		return err
	}
	if len(d.Members) == 0 {
		note(c, "run %s: %s%s", d.ID, d.State, after(": ", d.Waits()))
	}
	if e.format(c) == formatTable {
		r := d.Run
		columns, row := "workflow,for,state*,created,by", []string{r.Request.Workflow, r.Audience(), string(r.State), when(r.Created), r.By}
		if len(r.Request.Windows) > 0 {
			columns, row = columns+",window", append(row, windowsText(r.Request.Windows))
		}
		if r.Request.DuringFreeze != "" {
			columns, row = columns+",during freezes", append(row, r.Request.DuringFreeze)
		}
		if r.Request.OverBudget != "" {
			columns, row = columns+",over budget", append(row, r.Request.OverBudget)
		}
		if r.Why != "" && len(d.Members) > 0 {
			columns, row = columns+",why", append(row, r.Why)
		}
		about := rowsOf(columns, row)
		if err := about.writeTable(c.App.Writer, e.colour(c.App.Writer)); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(c.App.Writer); err != nil {
			return err
		}
	}
	return e.print(c, listingOf("node,state*,since,task,exit code,why,log", d.Members, func(m runs.Member) []string {
		since := ""
		if len(m.History) > 0 {
			since = when(m.History[len(m.History)-1].At)
		}
		return []string{m.Node, string(m.State), since, m.Task, m.Exit(), m.Why, m.LogURL}
	}), d)
}

func runLogsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the last output of a run's tasks", ArgsUsage: "ID [NODE]",
		Description: "The end of the output (of a failed task at most 4 KB, otherwise 1 KB), and where the full log is if there is a log store; " +
			"without NODE of all members that have ended or wait. Values of params, environment variables and tokens are left out. " +
			"On the node itself 'jorc workflow logs run-ID' prints everything.",
		Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.runLogs(c, cl, argument(c, 0), argument(c, 1)) }),
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

func (e *environment) runLogs(c *cli.Context, cl *target, id, node string) error {
	r := cl.runs()
	d, err := r.Show(c.Context, id)
	if err != nil {
		return wrongID(c, err)
	}
	tails := map[string]string{}
	if node == "" {
		tails, err = r.Tails(c.Context, d.ID)
	} else if slices.ContainsFunc(d.Members, func(m runs.Member) bool { return m.Node == node }) {
		tails[node], err = r.Tail(c.Context, d.ID, node)
	} else if err = cl.CheckHost(c.Context, node); err == nil {
		err = fmt.Errorf("run %q: node %q has no part in it: 'jorc cluster runs %s' lists who has", d.ID, node, d.ID)
	}
	if err != nil {
		return err
	}
	logs := []runLog{}
	for _, m := range d.Members {
		tail := tails[m.Node]
		if m.Node == node || node == "" && (tail != "" || m.LogURL != "" || m.Why != "" || m.State.Ended()) {
			logs = append(logs, runLog{m.Node, m.State, m.Task, m.ExitCode, m.Why, tail, m.LogURL})
		}
		if m.Node == node && tail == "" && m.LogURL == "" && m.State != runs.Pending {
			note(c, "no output is here; 'jorc workflow logs run-%s' on %s prints the log", d.ID, printable(node))
		}
	}
	if e.format(c) == formatJSON {
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

func approveCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "approve", Usage: "approve a run that needs approval", ArgsUsage: "ID",
		Description: "Repeating it changes nothing. A run that was cancelled stays so, and the exit code is 4.",
		Action:      env.onCluster(func(c *cli.Context, cl *target) error { return env.approveRun(c, cl, argument(c, 0)) }),
	}
}

func cancelCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "end a run", ArgsUsage: "ID",
		Description: "Members that have not started do not start; the others end after the task that is running, or at once with --kill. " +
			"Repeating it changes nothing. A run of a rule would come back: it ends with its rule, and the exit code is 4.",
		Flags:  []cli.Flag{killFlag()},
		Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.cancelRun(c, cl, argument(c, 0)) }),
	}
}

func killFlag() cli.Flag {
	return &cli.BoolFlag{Name: "kill", Usage: "also end running tasks: SIGTERM, then SIGKILL after their kill_grace", DisableDefaultText: true}
}

func (e *environment) approveRun(c *cli.Context, cl *target, id string) error {
	return e.changeRun(c, cl, id, "it no longer needs approval", func(r *runs.Runs, by string) (runs.Run, bool, error) {
		return r.Approve(c.Context, id, by)
	})
}

func (e *environment) cancelRun(c *cli.Context, cl *target, id string) error {
	return e.changeRun(c, cl, id, "it has ended, or was cancelled already", func(r *runs.Runs, by string) (runs.Run, bool, error) {
		return r.Cancel(c.Context, id, by, c.Bool("kill"))
	})
}

// changedRun is the answer of what changes a run.
type changedRun struct {
	ID      string     `json:"id"`
	State   runs.State `json:"state"`
	Changed bool       `json:"changed"`
}

// changeRun changes one run; already is printed when there was nothing to change.
func (e *environment) changeRun(c *cli.Context, cl *target, id, already string, change func(r *runs.Runs, by string) (runs.Run, bool, error)) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	run, changed, err := change(cl.runs(), by)
	switch {
	case errors.Is(err, runs.ErrState):
		return &exitError{code: exitConflict, err: err}
	case err != nil:
		return wrongID(c, err)
	case !changed:
		note(c, "run %q: %s; nothing was changed", id, already)
	}
	return e.print(c, rowsOf("id,state", []string{id, string(run.State)}), changedRun{id, run.State, changed})
}

// wrongID makes an invalid ID wrong usage.
func wrongID(c *cli.Context, err error) error {
	if errors.Is(err, runs.ErrInvalid) {
		return usagef(c, "%v", err)
	}
	return err
}

func clusterWaitCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until members of the cluster reach a goal",
		Description: "GOAL is idle (no run, no rollout by a policy and no member's work is in progress; whose last run failed counts as failed), version=V (all that take part in its rollout run it), members=N (so many have joined) or run=ID (it has ended). " +
			"Members are those that the cluster's own filter and --filter match, managers left out. " +
			"Exits 0 when all have it, 1 when some failed, with a line on stderr for each; 6 at once when the cluster is paused, " +
			"and with version=V when only members are missing that are held, drained or given up; 124 at the timeout.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "for", Usage: "`GOAL` to wait for", Value: "idle"},
			&cli.StringFlag{Name: "filter", Usage: "only members that `EXPR` matches"},
			&cli.StringFlag{Name: "except-run", Usage: "with idle: do not wait for run `ID`"},
			&cli.StringFlag{Name: "except-node", Usage: "with idle: do not wait for the work of `NODE`"},
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`", DefaultText: "none"},
		},
		Action: env.waitForCluster,
	}
}

func (e *environment) waitForCluster(c *cli.Context) error {
	goal, err := runs.ParseGoal(c.String("for"))
	if err != nil {
		return usagef(c, "--for: %v", err)
	}
	if c.IsSet("except-run") || c.IsSet("except-node") {
		if !goal.Idle {
			return usagef(c, "--except-run and --except-node need --for idle")
		}
		goal.Except = runs.Caller{Run: c.String("except-run"), Node: c.String("except-node")}
	}
	filter, err := filterOf(c)
	if err != nil {
		return err
	}
	if err := notNegative(c, "timeout"); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	return e.awaitGoal(c, cl, goal, filter)
}

// awaitGoal is await that prints the verdict as JSON where that is asked for.
func (e *environment) awaitGoal(c *cli.Context, cl *target, goal runs.Goal, filter *cluster.Filter) error {
	v, err := e.await(c, cl, goal, filter)
	answered := err == nil || errors.As(err, new(*exitError)) // an answer, if not the one that was hoped for
	if e.format(c) == formatJSON && answered {
		return errors.Join(e.writeJSON(c.App.Writer, v), err)
	}
	return err
}

// await waits for the goal, at most for --timeout, and makes the outcome an exit
// code. The verdict is the state of the cluster at the end.
func (e *environment) await(c *cli.Context, cl *target, goal runs.Goal, filter *cluster.Filter) (runs.Verdict, error) {
	timeout := c.Duration("timeout")
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	missing := ""
	if job, node := e.getenv("JORC_JOB"), e.getenv("JORC_NODE"); goal.Except == (runs.Caller{}) && job != "" && node != "" { // in a task
		goal.Except = runs.Caller{Job: job, Node: node}
	}
	w := &runs.Waiter{
		Client: cl.client, Cluster: cl.Cluster, Filter: filter, Rollouts: cl.rollouts(),
		Warn: func(text string) { note(c, "%s", printable(text)) },
		Missing: func(text string) {
			missing = text
			if goal.Run == "" && isTerminal(c.App.ErrWriter) {
				note(c, "waiting: %s", printable(text))
			}
		},
	}
	ended := func() {}
	if goal.Run != "" {
		live := e.live(c, quietWait)
		w.Progress = func(d runs.Detail) { live.Show(runProgress(d)) }
		ended = func() { live.Stop(true) }
	}
	v, err := w.Await(ctx, goal)
	ended()
	v.Missing = cmp.Or(v.Missing, missing)
	if v.Failed == nil {
		v.Failed = []runs.Trouble{} // a list, in JSON, too
	}
	switch {
	case errors.Is(err, runs.ErrPaused), errors.Is(err, rollout.ErrAside):
		v.Missing = err.Error()
		return v, &exitError{code: exitStopped, err: err}
	case err != nil && c.Context.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return v, &exitError{code: exitTimeout, err: fmt.Errorf("timed out after %v%s", timeout, after(": ", missing))}
	case err != nil:
		return v, err
	case len(v.Failed) == 0:
		v.Missing = ""
		return v, nil
	}
	for _, f := range v.Failed {
		if f.Node != "" {
			note(c, "%s: %s", printable(f.Node), printable(f.Why))
		} else {
			note(c, "%s", printable(f.Why))
		}
	}
	return v, errNo
}

// runProgress is a run for a live display.
func runProgress(d runs.Detail) terminal.Progress {
	p := terminal.Progress{Title: fmt.Sprintf("run %s of %s: %s", d.ID, d.Request.Workflow, d.State), Since: d.Created, Until: d.Ended, Waits: d.Waits()}
	return onHosts(p, d.Counts.Hosts(), d.Members, func(m runs.Member) pace.HostProgress { return m.Progress(d.Created) })
}

// windowsText is what --window takes for windows.
func windowsText(all []pace.Window) string {
	texts := make([]string, len(all))
	for i, w := range all {
		texts[i] = w.String()
	}
	return strings.Join(texts, "; ")
}
