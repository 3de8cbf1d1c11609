package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

func manCommand(*environment) *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page (roff)",
		Description: "Read it with 'jorc man | man -l -', or install it as jorc.8.",
		Action: func(c *cli.Context) error {
			_, err := io.WriteString(underlying(c.App.Writer), manPage(c.App))
			return err
		},
	}
}

// manPage is the manual page of all commands, in roff. The library could make one, but
// its Markdown parser would be initialised at each start of jorc: the Makefile builds
// without it.
func manPage(app *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".nh\n.TH %s 8\n.SH NAME\n%[1]s \\- %s\n.SH SYNOPSIS\n%s", app.Name, roff(app.Usage), roffLines(app.UsageText))
	b.WriteString(".SH GLOBAL OPTIONS\n")
	b.WriteString(manFlags(app.Flags))
	b.WriteString(".SH COMMANDS\n")
	for _, c := range app.Commands {
		b.WriteString(manCommandText(c, app.Name))
	}
	return b.String()
}

// manCommandText is a part of the page: a command and all below it.
func manCommandText(c *cli.Command, parent string) string {
	if c.Hidden {
		return ""
	}
	var b strings.Builder
	name := parent + " " + c.Name
	fmt.Fprintf(&b, ".SS %s\n%s\n.PP\n%s", roff(name), roff(c.Usage), roffLines(c.UsageText))
	if len(c.Aliases) > 0 {
		fmt.Fprintf(&b, ".PP\nAlso: %s\n", roff(strings.Join(c.Aliases, ", ")))
	}
	if c.Description != "" {
		b.WriteString(".PP\n" + roff(c.Description) + "\n")
	}
	b.WriteString(manFlags(c.Flags))
	for _, sub := range c.Subcommands {
		b.WriteString(manCommandText(sub, name))
	}
	return b.String()
}

// manFlags are the flags with what --help says of them.
func manFlags(flags []cli.Flag) string {
	var items []string
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		names, usage, _ := strings.Cut(f.String(), "\t")
		items = append(items, fmt.Sprintf(".TP\n\\fB%s\\fR\n%s\n", roff(names), roff(strings.TrimSpace(usage))))
	}
	slices.Sort(items)
	return strings.Join(items, "")
}

// roff escapes a text. Its lines are one paragraph each.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimSpace(text))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n.PP\n")
}

// roffLines are lines as they are.
func roffLines(text string) string {
	return ".nf\n" + strings.ReplaceAll(roff(text), "\n.PP\n", "\n") + "\n.fi\n"
}
