package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/runs"
)

func clusterWaitCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until members of the cluster reach a goal",
		Description: "GOAL is idle (no run, no rollout by a policy and no member's work is in progress; whose last run failed counts as failed), version=V (all run it), members=N (so many have joined) or run=ID (it has ended). " +
			"Members are those that the cluster's own filter and --filter match, managers left out. " +
			"Exits 0 when all have it, 1 when some failed, with a line on stderr for each; 6 at once when the cluster is paused; 124 at the timeout.",
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
	if err := none(c); err != nil {
		return err
	}
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
	filter, err := cluster.ParseFilter(c.String("filter"))
	if err != nil {
		return usagef(c, "--%v", err)
	}
	if c.Duration("timeout") < 0 {
		return usagef(c, "--timeout must not be negative")
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	v, err := e.await(c, cl, goal, filter, c.Duration("timeout"))
	var answer *exitError // an answer, if not the one that was hoped for
	if format == formatJSON && (err == nil || errors.As(err, &answer)) {
		return errors.Join(e.writeJSON(c.App.Writer, v), err)
	}
	return err
}

// await waits for the goal and makes what became of it an exit code; the verdict
// is how far the cluster was at last.
func (e *environment) await(c *cli.Context, cl *cluster.Cluster, goal runs.Goal, filter *cluster.Filter, timeout time.Duration) (runs.Verdict, error) {
	client, settings, err := e.consul(c)
	if err != nil {
		return runs.Verdict{}, err
	}
	ctx, cancel := withTimeout(c.Context, timeout)
	defer cancel()
	missing := ""
	w := &runs.Waiter{
		Client: client, Cluster: cl, Filter: filter,
		Rollouts: rollout.New(client, settings.Prefix, settings.Cluster),
		Missing: func(text string) {
			missing = text
			if isTerminal(c.App.ErrWriter) {
				fmt.Fprintf(c.App.ErrWriter, "jorc: waiting: %s\n", printable(text))
			}
		},
	}
	v, err := w.Await(ctx, goal)
	v.Missing = cmp.Or(v.Missing, missing)
	if v.Failed == nil {
		v.Failed = []runs.Trouble{} // a list, in JSON, too
	}
	switch {
	case errors.Is(err, runs.ErrPaused):
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
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s: %s\n", printable(f.Node), printable(f.Why))
		} else {
			fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", printable(f.Why))
		}
	}
	return v, &exitError{code: exitFailed}
}
