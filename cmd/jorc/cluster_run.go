package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
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
		Name: "run", Usage: "run a workflow on members", ArgsUsage: "WORKFLOW",
		Description: "The workflow must be defined on the members; a member without it fails. Prints the run's id. Members are those that the cluster's " +
			"own filter, --filter and --role match when the run begins, managers left out; exits 1 when there are none now. " +
			"The same --id twice is one run; with anything else under it nothing is written, and the exit code is 4. " +
			"With --wait exits as 'jorc cluster wait --for run=ID' does.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "filter", Usage: "only members that `EXPR` matches"},
			&cli.StringFlag{Name: "role", Usage: "only members with `ROLE`"},
			&cli.BoolFlag{Name: "on-manager", Usage: "once, on a manager or where the orchestrator is; its tasks may start runs", DisableDefaultText: true},
			&cli.StringFlag{Name: "max-parallel", Usage: "at most `N` members at the same time, or N%", DefaultText: "all"},
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
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument WORKFLOW")
	}
	if c.IsSet("timeout") && (!c.Bool("wait") || c.Duration("timeout") < 0) {
		return usagef(c, "--timeout goes with --wait, and must not be negative")
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	q, err := requestOf(c, args[0])
	if err != nil {
		return err
	}
	id := c.String("id")
	if id == "" && !c.IsSet("id") {
		id = runs.NewID(time.Now())
	}
	if err := runs.CheckID(id); err != nil {
		return usagef(c, "%v", err)
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	r := runs.New(cl.Store())
	if err := checkMembers(c.Context, cl, r, id, q); err != nil {
		return err
	}
	by, err := e.author(c)
	if err != nil {
		return err
	}
	run, created, err := r.Ask(c.Context, id, q, by)
	if err != nil {
		return err
	}
	if !created {
		fmt.Fprintf(c.App.ErrWriter, "jorc: run %q was asked for already; it is %s\n", id, run.State)
	}
	if format == formatJSON && !c.Bool("wait") {
		err = e.writeJSON(c.App.Writer, run)
	} else if format != formatJSON {
		_, err = fmt.Fprintln(c.App.Writer, id)
	}
	if err != nil {
		return fmt.Errorf("run %q was created, but its id could not be printed: %w", id, err)
	}
	if created && mayBeClosed(c.App.Writer) {
		fmt.Fprintf(c.App.ErrWriter, "jorc: stdout is closed, or discards the answer: the id of the run is %s\n", printable(id))
	}
	if !run.State.Ended() {
		e.wantsOrchestrator(c, r)
	}
	if !c.Bool("wait") {
		return nil
	}
	_, err = e.await(c, cl, runs.Goal{Run: id}, nil, c.Duration("timeout"))
	if d, showErr := r.Show(c.Context, id); format == formatJSON && showErr == nil {
		if writeErr := e.writeJSON(c.App.Writer, d); writeErr != nil {
			return fmt.Errorf("run %q: its outcome could not be printed: %w", id, errors.Join(writeErr, err))
		}
	}
	return err
}

func requestOf(c *cli.Context, workflow string) (runs.Request, error) {
	params, err := paramsOf(c)
	if err != nil {
		return runs.Request{}, err
	}
	q := runs.Request{
		Workflow: workflow, Params: params, Filter: c.String("filter"), Role: c.String("role"), OnManager: c.Bool("on-manager"), NeedsApproval: c.Bool("needs-approval"),
	}
	if c.IsSet("max-parallel") {
		if q.MaxParallel, err = rollout.ParseAmount(c.String("max-parallel")); err != nil {
			return q, usagef(c, "--max-parallel: %v", err)
		}
	}
	if c.IsSet("role") && q.Role == "" {
		return q, usagef(c, "--role must not be empty")
	}
	var bad *cluster.FilterError
	switch err := q.Check(); {
	case errors.As(err, &bad):
		return q, usagef(c, "--%v", err)
	case err != nil:
		return q, usagef(c, "%v", err)
	}
	return q, nil
}

// checkMembers fails for a new run that no member matches.
func checkMembers(ctx context.Context, cl *cluster.Cluster, r *runs.Runs, id string, q runs.Request) error {
	filter, err := cluster.ParseFilter(q.Filter)
	if err != nil {
		return err
	}
	all, exists, err := runs.Candidates(ctx, cl, filter)
	if err != nil {
		return err
	}
	if !exists {
		_, err := cl.Profile(ctx) // says what to do
		return err
	}
	if q.OnManager {
		return nil
	}
	q.Filter = "" // the candidates match it
	if len(runs.Matching(q, all, nil)) > 0 {
		return nil
	}
	if _, err := r.Show(ctx, id); !errors.Is(err, runs.ErrNoRun) {
		return err // its members are decided already
	}
	if q.Role != "" {
		return withoutRole(ctx, cl, q.Role)
	}
	return fmt.Errorf("no member of cluster %q matches: nothing was written; 'jorc cluster members' lists them, managers take no part", cl.Name())
}

// withoutRole is the error that no member with a role matches, or that no member
// has the role, and which roles exist.
func withoutRole(ctx context.Context, cl *cluster.Cluster, role string) error {
	all, err := cl.Members(ctx, cluster.MembersOptions{Unreadable: func(string, error) {}})
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range all {
		for _, r := range all[i].Roles {
			known[r] = true
		}
	}
	if known[role] {
		return fmt.Errorf("no member of cluster %q with role %q matches: nothing was written; 'jorc cluster members' lists them", cl.Name(), role)
	}
	return fmt.Errorf("no member of cluster %q has role %q%s", cl.Name(), role, text.Unknown(role, "roles", slices.Collect(maps.Keys(known))))
}

// wantsOrchestrator warns if no orchestrator would carry out a run.
func (e *environment) wantsOrchestrator(c *cli.Context, r *runs.Runs) {
	if there, err := r.Orchestrated(c.Context); err == nil && !there {
		fmt.Fprintln(c.App.ErrWriter, "jorc: no orchestrator runs: the run begins when an agent with an orchestrator block is up")
	}
}
