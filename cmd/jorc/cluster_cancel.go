package main

import (
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/runs"
)

func cancelCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "cancel", Usage: "end a run", ArgsUsage: "ID",
		Description: "Members that have not begun do not; those that have end after the task that is running. Repeating it changes nothing. " +
			"A run of a rule would come back: it ends with its rule, and the exit code is 4.",
		Action: env.changeRun("it has ended, or was cancelled already", (*runs.Runs).Cancel),
	}
}
