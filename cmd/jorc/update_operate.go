package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/text"
)

// operateCommands change the current rollout.
func operateCommands(env *environment) []*cli.Command {
	return []*cli.Command{
		{
			Name: "pause", Usage: "stop starting new hosts; hosts already updating continue", Flags: []cli.Flag{reasonFlag()},
			Action: env.operate("it is paused already", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return stopped(env, c, r.Pause)
			}),
		},
		{
			Name: "resume", Usage: "end a pause; earlier failures no longer count",
			Action: env.operate("it is not paused", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Resume(c.Context)
			}),
		},
		{
			Name: "promote", Usage: "continue after the canary, as soon as that is done",
			Action: env.operate("it is promoted already, or past its canary", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Promote(c.Context)
			}),
		},
		{
			Name: "abort", Usage: "end the rollout: no further host begins, and the desired version stays", Flags: []cli.Flag{reasonFlag()},
			Action: env.operate("it is aborted already", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return stopped(env, c, r.Abort)
			}),
		},
		{
			Name: "give-up", Usage: "give up on a host: its place goes to the next", ArgsUsage: "HOST", Flags: []cli.Flag{reasonFlag()},
			Description: "HOST no longer counts as out of service. It stays in maintenance and continues by itself until it has converged, " +
				"and 'jorc update show' names it. Exits 1 when HOST has no open grant.",
			Action: func(c *cli.Context) error {
				args := arguments(c)
				if len(args) != 1 || args[0] == "" {
					return usagef(c, "missing argument HOST")
				}
				return env.giveUpHost(c, args[0])
			},
		},
		{
			Name: "retry", Usage: "ask a host to try again now", ArgsUsage: "[HOST]",
			Description: "HOST (this one) tries at once what failed, instead of after its pause. Exits 1 when HOST never reported anything.",
			Action:      env.retryHost,
		},
	}
}

// stopped stops the rollout in the name of the command's author.
func stopped(
	e *environment, c *cli.Context, stop func(context.Context, rollout.Stop) (rollout.Document, bool, error),
) (rollout.Document, bool, error) {
	by, err := e.author(c)
	if err != nil {
		return rollout.Document{}, false, err
	}
	return stop(c.Context, rollout.Stop{Reason: c.String("reason"), By: by})
}

// giveUpHost gives up on the grant of a host.
func (e *environment) giveUpHost(c *cli.Context, host string) error {
	rollouts, closeClient, err := e.printedRollouts(c)
	if err != nil {
		return err
	}
	defer closeClient()
	by, err := e.author(c)
	if err != nil {
		return err
	}
	version, err := rollouts.GiveUp(c.Context, host, by, c.String("reason"))
	if err != nil {
		if cl, clusterErr := e.cluster(c, ""); clusterErr == nil {
			if unknown := cl.CheckHost(c.Context, host); errors.Is(unknown, cluster.ErrNoHost) {
				return unknown
			}
		}
		return err
	}
	fmt.Fprintf(c.App.ErrWriter, "jorc: the next host may begin; %s stays in maintenance until it has converged\n", printable(host))
	l := listing{columns: []string{"host", "version"}, rows: [][]string{{host, version}}}
	return e.print(c, l, map[string]string{"host": host, "version": version})
}

// retryHost asks a host to try again now.
func (e *environment) retryHost(c *cli.Context) error {
	args := arguments(c)
	if len(args) > 1 {
		return usagef(c, "one host at a time")
	}
	ledger, client, settings, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	host, err := hostNamed(c, client, settings, strings.Join(args, ""))
	if err != nil {
		return err
	}
	known, err := ledger.Reports().Names(c.Context)
	if err != nil {
		return err
	}
	if !slices.Contains(known, host) {
		return fmt.Errorf("host %q has not reported anything%s", host, text.Unknown(host, "hosts that have", known))
	}
	return rollout.New(client, settings.Prefix, settings.Cluster).Retry(c.Context, host)
}

// operatedRollout is the answer of what changes a rollout.
type operatedRollout struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Changed bool   `json:"changed"`
}

// operate is an action that changes the rollout; already is said when there was
// nothing to change.
func (e *environment) operate(already string, change func(*cli.Context, *rollout.Rollouts) (rollout.Document, bool, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := noArguments(c); err != nil {
			return err
		}
		rollouts, closeClient, err := e.printedRollouts(c)
		if err != nil {
			return err
		}
		defer closeClient()
		d, changed, err := change(c, rollouts)
		if err != nil {
			return err
		}
		if !changed {
			fmt.Fprintf(c.App.ErrWriter, "jorc: the rollout of %s: %s; nothing was changed\n", printable(d.Version), already)
		}
		l := listing{columns: []string{"version", "phase"}, rows: [][]string{{d.Version, d.StateText()}}}
		return e.print(c, l, operatedRollout{d.Version, d.State(), changed})
	}
}
