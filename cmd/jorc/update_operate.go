package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/rollout"
)

// operateCommands change the rollout that is under way.
func operateCommands(env *environment) []*cli.Command {
	stop := func(e *environment, c *cli.Context) rollout.Stop {
		return rollout.Stop{Reason: c.String("reason"), By: e.getenv("USER")}
	}
	return []*cli.Command{
		{
			Name: "pause", Usage: "let nobody begin any more; those who are under way go on", Flags: []cli.Flag{reasonFlag()},
			Action: env.operate("it is paused already", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Pause(c.Context, stop(env, c))
			}),
		},
		{
			Name: "resume", Usage: "end a pause; failures until now do not count any more",
			Action: env.operate("it is not paused", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Resume(c.Context)
			}),
		},
		{
			Name: "promote", Usage: "go on after the canary, as soon as that is done",
			Action: env.operate("it is promoted already, or past its canary", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Promote(c.Context)
			}),
		},
		{
			Name: "abort", Usage: "end the rollout: nobody begins any more, and the desired version stays", Flags: []cli.Flag{reasonFlag()},
			Action: env.operate("it is aborted already", func(c *cli.Context, r *rollout.Rollouts) (rollout.Document, bool, error) {
				return r.Abort(c.Context, stop(env, c))
			}),
		},
	}
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
		if _, err := e.format(c); err != nil {
			return err
		}
		rollouts, closeClient, err := e.rollouts(c)
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
