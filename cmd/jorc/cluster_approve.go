package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/runs"
)

func approveCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "approve", Usage: "let a run begin that needs it", ArgsUsage: "ID",
		Description: "Repeating it changes nothing. A run that was cancelled stays so, and the exit code is 4.",
		Action:      env.changeRun("it needs no approval (any more)", (*runs.Runs).Approve),
	}
}

// changedRun is the answer of what changes a run.
type changedRun struct {
	ID      string     `json:"id"`
	State   runs.State `json:"state"`
	Changed bool       `json:"changed"`
}

// changeRun is an action on one run; already is said when there was nothing to
// change.
func (e *environment) changeRun(already string, change func(*runs.Runs, context.Context, string, string) (runs.Run, bool, error)) cli.ActionFunc {
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
		run, changed, err := change(r, c.Context, args[0], e.getenv("USER"))
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
