package main

import (
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
)

func renderCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "render the configured templates once, as the agent would",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "write the files (the default)"},
			&cli.BoolFlag{Name: "dry-run", Usage: "write nothing; list the files that would change"},
			&cli.BoolFlag{Name: "diff", Usage: "write nothing; print what would change, and exit 1 if anything would"},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "wait at most this long for missing data; 0: no limit"},
		},
		Description: "Checks, guards, reloads and the order of things are those of 'jorc agent'. " +
			"While an agent works with the same state directory only --dry-run and --diff are possible.",
		Action: env.render,
	}
}

func (e *environment) render(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	mode := agent.RenderOnce
	switch {
	case c.Bool("dry-run") && c.Bool("diff"), c.Bool("once") && (c.Bool("dry-run") || c.Bool("diff")):
		return usagef(c, "only one of --once, --dry-run and --diff")
	case c.Bool("dry-run"):
		mode = agent.DryRun
	case c.Bool("diff"):
		mode = agent.Diff
	}
	if len(e.configPaths(c)) == 0 {
		return usagef(c, "no configuration: %s does not exist; name one with --config PATH", filepath.Join(e.etc, "jorc"))
	}
	a, _, err := e.buildAgent(c, func() (*config.Config, error) { return e.config(c) }, false)
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	changes, err := a.Render(ctx, mode, rawData(c.App.Writer))
	if err == nil && changes && mode == agent.Diff {
		return &exitError{code: exitFailed}
	}
	return err
}
