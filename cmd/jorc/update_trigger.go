package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

func triggerCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "trigger", Usage: "make a version the desired one", ArgsUsage: "VERSION",
		Description: "A version is one segment of a key: letters, digits and . - _ + ~ : @ = , but no slash. Triggering it again changes nothing.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would change, and write nothing", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error { return env.trigger(c, false) },
	}
}

func (e *environment) trigger(c *cli.Context, quiet bool) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "which version?")
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	t, err := ledger.Trigger(c.Context, args[0], c.Bool("dry-run"))
	if err != nil || quiet {
		return err
	}
	if c.Bool("dry-run") && format != formatJSON {
		fmt.Fprintln(c.App.ErrWriter, "jorc: dry run: nothing was written")
	}
	changed := "no"
	if t.Changed {
		changed = "yes"
	}
	return e.print(c, listing{columns: []string{"version", "previous", "changed"}, rows: [][]string{{t.Version, t.Previous, changed}}}, t)
}
