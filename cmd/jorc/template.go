package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/durable"
	"github.com/jorc/jorc/internal/fixture"
	"github.com/jorc/jorc/internal/text"
)

func templateCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "template",
		Usage: "test templates without Consul, and record the data for such tests",
		Subcommands: []*cli.Command{{
			Name: "test", Usage: "render templates from fixtures and compare with what is expected", ArgsUsage: "[PATH…]",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "update", Usage: "write the expected files as the templates render them now"},
				&cli.StringFlag{Name: "junit", Usage: "write the results for a CI system to `FILE`, in JUnit's format"},
			},
			Description: "A fixture is a file NAME.test.hcl: a template, the services, keys, params and secrets that it sees, and what must come out. " +
				"PATH is one, or a directory with all in and below it; the default is the current directory. Consul and Vault are never asked. " +
				"Templates are executed as 'jorc agent' executes them; a check command runs where the fixture says how it ends. " +
				"A difference is shown with the lines of the template that wrote it. Exits 1 for a difference, 2 for a fixture that cannot be used. " +
				"A fixture that names a template and no configuration takes that of --config.",
			Action: env.testTemplates,
		}, {
			Name: "record", Usage: "write a fixture of what is true now", ArgsUsage: "NAME",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "out", Value: ".", Usage: "write NAME.test.hcl and NAME.expected to `DIR`"},
				&cli.BoolFlag{Name: "force", Usage: "overwrite files that exist"},
				&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "wait at most this long for missing data; 0: no limit"},
			},
			Description: "NAME is a template of this host's configuration. Values of secrets are left out: placeholders replace those of Vault, of params whose schema " +
				"says that they are secret, and of keys, params, files and variables whose names say so. NAME.expected is what the template makes of that. Prints the files.",
			Action: env.recordTemplate,
		}},
	}
}

func (e *environment) testTemplates(c *cli.Context) error {
	paths := arguments(c)
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := fixture.Find(paths)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	results, err := fixture.Test(c.Context, files, fixture.Options{
		Update: c.Bool("update"), Log: hclog.NewNullLogger(),
		Config: func() (*config.Config, error) {
			own := e.configPaths(c)
			if len(own) == 0 {
				return nil, errors.New("there is no configuration: set config in the fixture, or give --config PATH")
			}
			return e.load(c, own)
		},
	})
	if err != nil {
		return err
	}
	if file := c.String("junit"); file != "" {
		var b bytes.Buffer
		if err := errors.Join(fixture.WriteJUnit(&b, results), durable.WriteFile(file, b.Bytes(), 0o644)); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	l := listingOf("state*,fixture,detail", results, func(r fixture.Result) []string { return []string{r.State, r.Fixture, r.Detail} })
	if err := e.print(c, l, results); err != nil {
		return err
	}
	return e.templateVerdict(c, results)
}

// templateVerdict shows the differences, unless JSON has them, and says how many there are.
func (e *environment) templateVerdict(c *cli.Context, results []fixture.Result) error {
	failed, broken := 0, 0
	for _, r := range results {
		switch r.State {
		case fixture.StateFailed:
			failed++
		case fixture.StateBroken:
			broken++
		}
		if r.Diff != "" && e.format(c) == formatTable {
			if _, err := fmt.Fprintf(rawData(c.App.Writer), "\n%s", r.Diff); err != nil {
				return err
			}
		}
	}
	many := func(n int) string { return text.Count(n, "fixture", "fixtures") }
	switch {
	case broken > 0:
		return &exitError{code: exitUsage, err: fmt.Errorf("%s of %d cannot be used, %d failed", many(broken), len(results), failed)}
	case failed > 0:
		return fmt.Errorf("%s of %s failed: correct the template, or accept what it writes with --update", strconv.Itoa(failed), many(len(results)))
	}
	return nil
}

func (e *environment) recordTemplate(c *cli.Context) error {
	a, _, err := e.buildAgent(c, func() (*config.Config, error) { return e.config(c) }, false)
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	record, err := a.Record(ctx, argument(c, 0))
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.String("out"))
	if err != nil {
		return err
	}
	written, err := record.Write(c.Context, dir, c.Bool("force"))
	if err != nil {
		return err
	}
	if len(written) == 1 {
		note(c, "the template does not render with placeholders in place of secrets: edit %s", written[0])
	}
	return e.lines(c, "file", written, written)
}
