package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/text"
)

func configCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "check configuration files, and explain settings",
		Subcommands: []*cli.Command{{
			Name:      "validate",
			Usage:     "check configuration files as the agent reads them",
			ArgsUsage: "PATH…",
			Description: "PATH is a file or a directory of *.hcl and *.json; all of them make one configuration. " +
				"Problems are shown with file, line and excerpt, and exit 2; so are a static workflow that does not exist and a service whose name " +
				"Consul's DNS cannot answer, with which the agent starts. Programs, sources and directories that do not exist here are warnings. " +
				"stdout stays empty, except with -o json.",
			Action: env.validateConfig,
		}, {
			Name:      "explain",
			Usage:     "say what a setting or block of the configuration is for",
			ArgsUsage: "[NAME]",
			Description: "NAME is a block (template) or a setting (template.wait, or cluster at the top). " +
				"Without NAME all blocks are listed. Neither files nor Consul are read.",
			Action: env.explainConfig,
		}, {
			Name:  "schema",
			Usage: "print a JSON Schema of configuration files in JSON, for editors",
			Flags: []cli.Flag{&cli.StringFlag{Name: "check", Usage: "print nothing; fail unless `FILE` is the schema of this version"}},
			Description: "What the schema refuses 'jorc config validate' refuses, too; that also checks what a schema cannot say. " +
				"Keep the file outside of the directories that hold configuration.",
			Action: env.configSchema,
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
		loaded.Warnings, err = agent.Review(loaded)
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

// configSchema prints the schema of the configuration, or compares a file with it.
func (e *environment) configSchema(c *cli.Context) error {
	if path := c.String("check"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := config.CheckSchema(data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	schema, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = rawData(c.App.Writer).Write(schema)
	return err
}

// explained is one setting in the answer of `config explain -o json`.
type explained struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Default     string `json:"default"`
	Since       string `json:"since"`
	Description string `json:"description"`
	Example     string `json:"example"`
}

// explainConfig prints all blocks, the settings of one, or one setting.
func (e *environment) explainConfig(c *cli.Context) error {
	name := c.Args().First()
	blocks := config.Reference()
	if name == "" {
		return e.print(c, listingOf("BLOCK,IN,DESCRIPTION", blocks, func(b config.Block) []string {
			return []string{cmp.Or(b.Name, "(top)"), strings.Join(b.In, " "), plainText(b.Doc)}
		}), explainAll(blocks...))
	}
	var known []string
	for _, b := range blocks {
		if b.Name == name {
			return e.print(c, listingOf("SETTING,TYPE,DEFAULT,DESCRIPTION", b.Settings, func(s config.Setting) []string {
				return []string{s.Name, s.Type, plainText(s.Default), plainText(s.Doc)}
			}), explainAll(b))
		}
		known = append(known, b.Name)
		for _, s := range b.Settings {
			if b.Path(s) == name {
				return e.print(c, rowsOf("FIELD,VALUE", []string{"setting", name}, []string{"type", s.Type}, []string{"default", plainText(s.Default)},
					[]string{"example", s.Name + " = " + s.Example}, []string{"since", s.Since}, []string{"description", plainText(s.Doc)}), explainOne(b, s))
			}
			known = append(known, b.Path(s))
		}
	}
	return usagef(c, "no block or setting %q%s; 'jorc config explain' lists the blocks", name, after(", did you mean ", text.Closest(name, known)))
}

func explainOne(b config.Block, s config.Setting) explained {
	return explained{b.Path(s), s.Type, s.Default, s.Since, s.Doc, s.Example}
}

func explainAll(blocks ...config.Block) []explained {
	var all []explained
	for _, b := range blocks {
		for _, s := range b.Settings {
			all = append(all, explainOne(b, s))
		}
	}
	return all
}

// plainText is a text of the reference without Markdown's marks for code.
func plainText(s string) string { return strings.ReplaceAll(s, "`", "") }

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
