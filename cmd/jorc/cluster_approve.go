package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/runs"
)

func approveCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "approve", Usage: "let a run begin that needs it", ArgsUsage: "ID",
		Description: "Repeating it changes nothing. A run that was cancelled stays so, and the exit code is 4.",
		Action:      env.changeRun("it needs no approval (any more)", approveRun),
	}
}

func cancelCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "end a run", ArgsUsage: "ID",
		Description: "Members that have not started do not start; the others end after the task that is running, or at once with --kill. " +
			"Repeating it changes nothing. A run of a rule would come back: it ends with its rule, and the exit code is 4.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "kill", Usage: "also end running tasks: SIGTERM, then SIGKILL", DisableDefaultText: true},
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
			return usagef(c, "which ID?")
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

// wrongID makes wrong usage of what is no ID.
func wrongID(c *cli.Context, err error) error {
	if errors.Is(err, runs.ErrInvalid) {
		return usagef(c, "%v", err)
	}
	return err
}
