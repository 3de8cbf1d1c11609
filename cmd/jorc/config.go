package main

import (
	"errors"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
)

func configCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "check configuration files",
		Subcommands: []*cli.Command{{
			Name:      "validate",
			Usage:     "check configuration files as the agent reads them",
			ArgsUsage: "PATH…",
			Description: "PATH is a file or a directory of *.hcl and *.json; all of them make one configuration. " +
				"Problems are shown with file, line and excerpt, and exit 2. Programs, sources and directories that do not exist here are warnings. " +
				"stdout stays empty, except with -o json.",
			Action: env.validateConfig,
		}},
	}
}

func (e *environment) validateConfig(c *cli.Context) error {
	paths := arguments(c)
	if len(paths) == 0 {
		return usagef(c, "missing argument PATH")
	}
	format := e.format(c)
	loaded, err := e.load(c, paths)
	if err == nil {
		var warnings []config.Problem
		warnings, err = agent.Review(loaded)
		loaded.Warnings = append(loaded.Warnings, warnings...)
	}
	if format == formatJSON {
		return validationJSON(c.App.Writer, loaded, err)
	}
	if err != nil {
		return err
	}
	for _, w := range loaded.Warnings {
		note(c, "warning: %s", w)
	}
	note(c, "%s: valid: %s", strings.Join(paths, " "), counted(
		count{len(loaded.Services), "service"}, count{len(loaded.Templates), "template"},
		count{len(loaded.Workflows), "workflow"}, count{len(loaded.Triggers), "trigger"}))
	return nil
}

// validation is the answer of `config validate -o json`.
type validation struct {
	Valid    bool      `json:"valid"`
	Problems []problem `json:"problems"`
	Warnings []problem `json:"warnings"`
}

type problem struct {
	File    string `json:"file"` // empty when a flag or variable is wrong
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Block   string `json:"block"`
	Message string `json:"message"`
}

// validationJSON writes the outcome of a load; wrong configuration still exits 2.
func validationJSON(w io.Writer, loaded *config.Config, err error) error {
	v := validation{Valid: err == nil, Problems: []problem{}, Warnings: []problem{}}
	var wrong *config.Error
	switch {
	case errors.As(err, &wrong):
		v.Problems = append(v.Problems, problems(wrong.Problems)...)
	case err != nil:
		return err
	default:
		v.Warnings = append(v.Warnings, problems(loaded.Warnings)...)
	}
	if err := writeJSON(w, v); err != nil {
		return err
	}
	if !v.Valid {
		return &exitError{code: exitUsage}
	}
	return nil
}

func problems(found []config.Problem) []problem {
	var all []problem
	for _, p := range found {
		all = append(all, problem{p.File, p.Line, p.Column, p.Block, p.Message})
	}
	return all
}
