package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/legacy"
)

// group is a heading in the list of commands and the names below it.
type group struct {
	heading  string
	commands []string
}

// rootGroups are the groups of jorc's own help, in the order shown.
var rootGroups = []group{
	{"Set up a host", []string{"agent", "render", "template", "config", "migrate", "dev"}},
	{"Form a cluster and run work on it", []string{"cluster", "update", "stage", "change", "workflow", "maintenance", "wait"}},
	{"Look", []string{"ui", "status", "service", "health"}},
	{"Administer", []string{"doctor", "debug", "ping", "completion", "man", "version"}},
}

// clusterGroups are those of 'jorc cluster'.
var clusterGroups = []group{
	{"Form a cluster", []string{"init", "join", "leave", "leader", "profile", "meta"}},
	{"Run work", []string{"run", "runs", "approve", "cancel", "logs", "wait", "orchestrate"}},
	{"Look", []string{"attention", "list", "show", "members", "view", "events", "audit", "report", "deps", "files"}},
	{"Lock and hold", []string{"lock", "unlock", "slots", "pause", "resume", "hold", "unhold", "observe-only", "budget", "freeze"}},
	{"Administer", []string{"bootstrap-acl", "export", "import", "delete"}},
}

// arrangeGroups gives each command the heading of its group as category.
func arrangeGroups(commands []*cli.Command, groups []group) {
	for _, g := range groups {
		for _, name := range g.commands {
			if c := find(commands, name); c != nil {
				c.Category = g.heading
			}
		}
	}
}

// groupedHelp is a help template of the library with the commands below the
// headings of groups. The library orders headings by their letters.
func groupedHelp(template string, commands []*cli.Command, groups []group) string {
	if len(groups) == 0 {
		return template
	}
	width := 0
	for _, c := range commands {
		if !c.Hidden {
			width = max(width, len(strings.Join(c.Names(), ", ")))
		}
	}
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "\n   %s:\n", g.heading)
		for _, name := range g.commands {
			if c := find(commands, name); c != nil && !c.Hidden {
				fmt.Fprintf(&b, "     %-*s  %s\n", width, strings.Join(c.Names(), ", "), c.Usage)
			}
		}
	}
	return strings.Replace(template, `{{template "visibleCommandCategoryTemplate" .}}`, strings.TrimRight(b.String(), "\n"), 1)
}

// commandHelp is the library's template without the category of the command.
func commandHelp(template string) string {
	const category = `{{if .Category}}

CATEGORY:
   {{.Category}}{{end}}`
	return strings.Replace(template, category, "", 1)
}

// finish gives c and all below it what every command has: a help flag of its own (the
// library's shares flag values between apps, and takes "help" and "h" from the
// arguments), and errors that name the command.
func (e *environment) finish(c *cli.Command, parent string) {
	name := parent + " " + c.Name
	e.record(c, name)
	c.HideHelp = true
	c.Flags = append(c.Flags, helpFlag())
	c.OnUsageError = onUsageError
	if c.Action == nil && len(c.Subcommands) > 0 {
		c.Action = func(ctx *cli.Context) error { return usagef(ctx, "missing command: one of %s", names(c.Subcommands)) }
	}
	if len(c.Subcommands) == 0 && !c.SkipFlagParsing {
		c.Action = e.checked(c.ArgsUsage, c.Action)
	}
	for _, sub := range c.Subcommands {
		e.finish(sub, name)
	}
}

// explain gives c and all below it their help: a usage line, and the headings of groups.
func explain(c *cli.Command, parent string, groups []group) {
	name := parent + " " + c.Name
	if c.UsageText == "" {
		c.UsageText = usageLine(c, name)
	}
	c.CustomHelpTemplate = cli.CommandHelpTemplate
	if !legacy.Is(c) {
		c.CustomHelpTemplate = commandHelp(cli.CommandHelpTemplate)
	}
	if len(c.Subcommands) > 0 {
		arrangeGroups(c.Subcommands, groups)
		c.CustomHelpTemplate = groupedHelp(commandHelp(cli.SubcommandHelpTemplate), c.Subcommands, groups)
	}
	c.CustomHelpTemplate += "\nThe flags of 'jorc --help' are accepted here, too.\n"
	for _, sub := range c.Subcommands {
		explain(sub, name, nil)
	}
}

func usageLine(c *cli.Command, name string) string {
	parts := []string{name}
	if len(c.Flags) > 1 {
		parts = append(parts, "[flags]")
	}
	if len(c.Subcommands) > 0 {
		parts = append(parts, "COMMAND")
	}
	if c.ArgsUsage != "" {
		parts = append(parts, c.ArgsUsage)
	}
	return strings.Join(parts, " ")
}

func names(commands []*cli.Command) string {
	var all []string
	for _, c := range commands {
		if !c.Hidden {
			all = append(all, c.Name)
		}
	}
	return strings.Join(all, ", ")
}

func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}
