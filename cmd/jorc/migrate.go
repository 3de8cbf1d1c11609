package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/migrate"
)

func migrateCommand(env *environment) *cli.Command {
	const result = "The result goes to stdout. stderr names each setting that is not in it, with file, line and reason. " +
		"The exit code is 1 when a setting has no equivalent (the result is written all the same), 2 when the input or the result is invalid. "
	command := func(name, args, input string, convert converter) *cli.Command {
		return &cli.Command{
			Name:      name,
			Usage:     "convert the configuration of " + name,
			ArgsUsage: "[PATH…] [-- " + args + "]",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "out", Usage: "write " + name + ".hcl into `DIR` and validate it; an existing file is not replaced"},
				&cli.BoolFlag{Name: "check", Usage: "validate the result, also without --out"},
			},
			Description: input + " " + result + "Afterwards 'jorc render --diff' shows whether a rendered file would change.",
			Action:      func(c *cli.Context) error { return env.migrate(c, convert) },
		}
	}
	return &cli.Command{
		Name:  "migrate",
		Usage: "convert the configuration of another tool",
		Subcommands: []*cli.Command{
			command("consul-template", "FLAG…",
				"PATH is a file or directory as for consul-template's -config; FLAG… are flags of consul-template itself.", migrate.ConsulTemplate),
			command("envconsul", "FLAG… COMMAND ARG…",
				"PATH is a file or directory as for envconsul's -config; FLAG… are flags of envconsul itself, followed by the command that it runs.", migrate.Envconsul),
		},
	}
}

// converter converts the configuration of a tool.
type converter func(paths, args []string, o migrate.Options) (*migrate.Result, error)

func (e *environment) migrate(c *cli.Context, convert converter) error {
	paths, flags, _ := splitDash(c)
	if len(paths) == 0 && len(flags) == 0 {
		return usagef(c, "missing argument PATH, or flags of %s after --", c.Command.Name)
	}
	result, err := convert(paths, flags, migrate.Options{})
	if errors.Is(err, migrate.ErrInput) {
		return &exitError{code: exitUsage, err: err}
	}
	if err != nil {
		return err
	}
	file, err := e.deliver(c, result)
	if err != nil {
		return err
	}
	for _, f := range result.Findings {
		note(c, "%s", f)
	}
	if file != "" {
		note(c, "%s: written: %s", file, counted(count{result.Templates, "template"}, count{result.Processes, "process"}))
	}
	if file != "" || c.Bool("check") {
		if err := e.checkMigrated(c, file, result.Config); err != nil {
			return err
		}
	}
	if file != "" {
		note(c, "next: 'jorc render --diff --config %s' prints what would change in the rendered files", file)
	}
	if result.Lost() {
		return &exitError{code: exitFailed, err: errors.New("some settings have no equivalent: see above")}
	}
	return nil
}

// deliver writes the configuration to stdout, or to a new file, whose path it
// returns.
func (e *environment) deliver(c *cli.Context, result *migrate.Result) (string, error) {
	dir := c.String("out")
	if dir == "" {
		_, err := rawData(c.App.Writer).Write(result.Config)
		return "", err
	}
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the directory for the configuration: %w", err)
	}
	to, err := durable.OpenDir(dir)
	if err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	defer to.Close()
	name := c.Command.Name + ".hcl"
	file := filepath.Join(dir, name)
	f, err := to.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s exists and is not replaced: remove it, or name another directory with --out", file)
	}
	if err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	_, err = f.Write(result.Config)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return file, nil
}

// checkMigrated does what 'jorc config validate' does with the result, which is in
// file, or else only on stdout.
func (e *environment) checkMigrated(c *cli.Context, file string, text []byte) error {
	name := file
	if file == "" {
		dir, err := os.MkdirTemp("", "jorc-migrate-")
		if err != nil {
			return fmt.Errorf("check the configuration: %w", err)
		}
		defer os.RemoveAll(dir)
		name, file = "stdout", filepath.Join(dir, c.Command.Name+".hcl")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return fmt.Errorf("check the configuration: %w", err)
		}
	}
	loaded, err := e.load(c, []string{file})
	var warnings []config.Problem
	if err == nil {
		warnings, err = agent.Review(loaded)
	}
	var wrong *config.Error
	if errors.As(err, &wrong) {
		for i := range wrong.Problems {
			wrong.Problems[i].File = name
		}
	}
	if err != nil {
		return err
	}
	for _, w := range warnings {
		w.File = name
		note(c, "warning: %s", w)
	}
	note(c, "%s: valid", name)
	return nil
}
