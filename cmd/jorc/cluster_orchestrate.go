package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/orchestrator"
)

// orchestratorCommands are those of "jorc cluster" that are about what the
// orchestrator observes and decides.
func orchestratorCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name:  "orchestrate",
			Usage: "run an orchestrator cycle now and wait for it",
			Description: "Prints the cycle's report, or \"discarded\" if a cycle is running already. " +
				"Exits 1 if the cycle failed, or the cluster has no orchestrator.",
			Flags:  []cli.Flag{&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`; 0: never", Value: 2 * time.Minute}},
			Action: env.orchestrate,
		},
		{
			Name: "view", Usage: "show the orchestrator's last view of the members",
			Flags: []cli.Flag{&cli.BoolFlag{
				Name: "aggregate", Usage: "show only counts by life, agent, health, version, role and zone", DisableDefaultText: true,
			}},
			Action: env.showView,
		},
		{
			Name: "report", Usage: "show recent orchestrator cycles that changed something", ArgsUsage: "[NUMBER]",
			Description: "With NUMBER one report with its decisions and problems, 0 for the newest.",
			Action:      env.showReport,
		},
		{
			Name: "events", Usage: "show events: observed changes and decisions",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "print new events as they occur", DisableDefaultText: true},
				&cli.StringSliceFlag{Name: "kind", Usage: "only events of kind `K`, such as node_down; may be repeated"},
				&cli.IntFlag{Name: "limit", Usage: "only the last `N`; 0: all stored ones", Value: 100},
			},
			Action: env.showEvents,
		},
	}
}

func (e *environment) orchestrate(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	ctx, timeout := c.Context, c.Duration("timeout")
	if timeout < 0 {
		return usagef(c, "--timeout is %s, but must be 0 or more", timeout)
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	by, err := e.author(c)
	if err != nil {
		return err
	}
	r, err := orchestrator.Ask(ctx, cl.Store(), by)
	if errors.Is(err, context.DeadlineExceeded) && c.Context.Err() == nil {
		return &exitError{exitTimeout, fmt.Errorf("cluster %q: the cycle had not ended after %s: 'jorc cluster report' shows it when it has", cl.Name(), timeout)}
	}
	if err != nil {
		return fmt.Errorf("cluster %q: %w", cl.Name(), err)
	}
	if r == nil {
		return e.printDiscarded(c)
	}
	if err := e.print(c, reportListing(*r), r); err != nil {
		return err
	}
	if r.Outcome == orchestrator.OutcomeFailed {
		return fmt.Errorf("cluster %q: the cycle failed: %s", cl.Name(), r.Error)
	}
	return nil
}

// warnUnorchestrated reports on stderr that the cluster has no orchestrator, so that what is
// shown is old; what cannot be known is not told.
func warnUnorchestrated(c *cli.Context, cl *cluster.Cluster, what string) {
	if _, held, err := cluster.Orchestrator(c.Context, cl.Store()); err == nil && !held {
		fmt.Fprintf(c.App.ErrWriter, "jorc: cluster %q: %v, so %s: start an agent with an orchestrator block\n",
			cl.Name(), orchestrator.ErrNoOrchestrator, what)
	}
}

// printDiscarded says in the format asked for that a cycle was running already.
func (e *environment) printDiscarded(c *cli.Context) error {
	const word = "discarded"
	format, err := e.format(c)
	if err != nil {
		return err
	}
	if format == formatJSON {
		return e.writeJSON(c.App.Writer, map[string]string{"outcome": word})
	}
	_, err = fmt.Fprintln(c.App.Writer, word)
	return err
}

// reportListing is one report for people.
func reportListing(r orchestrator.Report) listing {
	l := listing{columns: []string{"what", "value"}, states: []string{"value"}}
	row := func(what, value string) {
		if value != "" {
			l.rows = append(l.rows, []string{what, value})
		}
	}
	row("number", strconv.FormatUint(r.Number, 10))
	row("start", r.Start.UTC().Format(time.RFC3339))
	row("duration", (time.Duration(r.Duration) * time.Millisecond).String())
	row("orchestrator", r.Node)
	row("trigger", r.Trigger)
	row("outcome", r.Outcome)
	row("error", r.Error)
	row("idle", r.Idle)
	row("synced", strconv.Itoa(r.Synced))
	row("failed", strconv.Itoa(r.Failed))
	row("events", eventsText(r))
	row("decisions", strconv.Itoa(r.Decided))
	for _, d := range r.Decisions {
		text := d.Text
		for _, more := range []struct{ word, text string }{{"", d.Reason}, {"dropped: ", d.Dropped}} {
			if more.text != "" {
				text += ": " + more.word + more.text
			}
		}
		row(strings.TrimSpace(d.Kind+" "+d.Node), text)
	}
	for _, p := range r.Problems {
		row(p.What+" "+p.Name, p.Why)
	}
	return l
}

func eventsText(r orchestrator.Report) string {
	if r.Events == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%d to %d)", r.Events, r.FirstSeq, r.LastSeq)
}
