package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/rollout"
)

func triggerCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "trigger", Usage: "set the desired version", ArgsUsage: "VERSION",
		Description: "A version is one segment of a key: letters, digits and . - _ + ~ : @ = , but no slash. " +
			"Without a policy all hosts go at once; with any of its flags members go as the orchestrator admits them. " +
			"It supersedes an unfinished rollout and names hosts that are behind, failed or out of service. " +
			"Triggering the same version again changes nothing; with other flags it changes the policy of the running rollout. " +
			"Exits 1 when a role is unknown or no member is left.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "print the hosts that would be admitted, step by step, and write nothing", DisableDefaultText: true},
			&cli.BoolFlag{
				Name: "require-converged", DisableDefaultText: true,
				Usage: "exit 1 while members are behind the version desired so far, failed, or out of service",
			},
		}, policyFlags()...),
		Action: func(c *cli.Context) error { return env.trigger(c, false) },
	}
}

func (e *environment) trigger(c *cli.Context, quiet bool) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument VERSION")
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	policy, err := policyOf(c)
	if err != nil {
		return err
	}
	by, err := e.author(c)
	if err != nil {
		return err
	}
	rollouts, closeClient, err := e.rollouts(c)
	if err != nil {
		return err
	}
	defer closeClient()
	t, err := rollouts.Trigger(c.Context, rollout.Request{
		Version: args[0], Policy: policy, By: by, DryRun: c.Bool("dry-run"), RequireConverged: c.Bool("require-converged"),
	})
	switch {
	case errors.Is(err, rollout.ErrPolicy):
		return usagef(c, "%v", err)
	case err != nil || quiet:
		return err
	}
	orchestrated := true
	if t.Document.Paced() {
		if orchestrated, err = rollouts.Orchestrated(c.Context); err != nil {
			return err
		}
	}
	dry := c.Bool("dry-run")
	for _, note := range triggerNotes(t, dry && format != formatJSON, orchestrated) {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", printable(note))
	}
	if dry {
		return e.print(c, planListing(t.Plan), t)
	}
	changed := "no"
	if t.Changed {
		changed = "yes"
	}
	return e.print(c, listing{columns: []string{"version", "previous", "changed"}, rows: [][]string{{t.Version, t.Previous, changed}}}, t)
}

const noOrchestrator = "no orchestrator runs, so no host is offered a grant: start an agent with orchestrator { enabled = true }"

// planListing is what a dry run answers: who would be admitted if no member fails.
func planListing(steps []rollout.Decision) listing {
	l := listing{columns: []string{"step", "what", "hosts", "of"}}
	for i, d := range steps {
		l.rows = append(l.rows, []string{strconv.Itoa(i + 1), d.Text, more(d.Nodes, d.Count), d.Reason})
	}
	return l
}

// triggerNotes are hints beside the answer.
func triggerNotes(t rollout.Triggered, dry, orchestrated bool) []string {
	var notes []string
	if s := t.Superseded; s != nil {
		notes = append(notes, fmt.Sprintf("the rollout of %s was unfinished (%s) and is superseded: %s", s.Version, s.State, s))
	}
	if t.Document.Paced() && t.OutText() != "" {
		notes = append(notes, t.OutText()+"; they count as out of service")
	}
	if t.Note != "" {
		notes = append(notes, t.Note)
	}
	if dry {
		what := "dry run: nothing would change"
		if t.Changed {
			what = fmt.Sprintf("dry run: %s would be desired (%s)", t.Version, policyText(t.Document.Policy))
		}
		notes = append(notes, what+"; nothing was written")
		if len(t.Waits) > 0 {
			notes = append(notes, "no host is admitted now: it waits for "+strings.Join(t.Waits, "; "))
		}
	}
	if !orchestrated {
		notes = append(notes, noOrchestrator)
	}
	return notes
}

// printedRollouts is rollouts for a command that prints an answer: it checks the
// format first.
func (e *environment) printedRollouts(c *cli.Context) (*rollout.Rollouts, func(), error) {
	if _, err := e.format(c); err != nil {
		return nil, nil, err
	}
	return e.rollouts(c)
}

// rollouts are those of the cluster.
func (e *environment) rollouts(c *cli.Context) (r *rollout.Rollouts, closeClient func(), err error) {
	_, client, settings, err := e.ledger(c)
	if err != nil {
		return nil, nil, err
	}
	return rollout.New(client, settings.Prefix, settings.Cluster), client.Close, nil
}
