package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/text"
)

func (a *arranger) usage(text string) error {
	return &usageError{command: a.name(), text: text}
}

// name is the command so far: "jorc service list".
func (a *arranger) name() string {
	words := []string{a.app.Name}
	for _, c := range a.path {
		words = append(words, c.Name)
	}
	return strings.Join(words, " ")
}

// commandOf names the command that a line is for, as far as that can be told
// of a line with mistakes.
func commandOf(app *cli.App, args []string) string {
	a := arranger{app: app, flags: map[*cli.Command][]string{}}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		if a.isFlag(args[i]) {
			taken, _ := a.flag(args[i], args[i+1:])
			i += taken
			continue
		}
		_ = a.argument(args[i])
	}
	return a.name()
}

func (a *arranger) unknownCommand(name string) error {
	var known []string
	for _, c := range a.commands() {
		if !c.Hidden {
			known = append(known, c.Names()...)
		}
	}
	message := fmt.Sprintf("unknown command %q", name)
	if near := text.Closest(name, known); near != "" {
		message += fmt.Sprintf(", did you mean %q?", near)
	}
	return a.usage(message)
}

// unknownFlag says what was close among the flags that are allowed here, or
// where a flag of that name belongs.
func (a *arranger) unknownFlag(name string) error {
	known := visibleNames(a.app.Flags)
	for _, c := range a.path {
		known = append(known, visibleNames(c.Flags)...)
	}
	message := "unknown flag " + dashes(name)
	if near := text.Closest(name, known); near != "" {
		return a.usage(message + ", did you mean " + dashes(near) + "?")
	}
	if len(a.path) == 0 {
		if c := commandWithFlag(a.app.Commands, name, ""); c != "" {
			return a.usage(fmt.Sprintf("%s: it belongs after its command: jorc %s %s", message, c, dashes(name)))
		}
	}
	return a.usage(message)
}

// commandWithFlag is the first command that has a flag of that name.
func commandWithFlag(commands []*cli.Command, flag, parent string) string {
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		if slices.Contains(visibleNames(c.Flags), flag) {
			return parent + c.Name
		}
		if below := commandWithFlag(c.Subcommands, flag, parent+c.Name+" "); below != "" {
			return below
		}
	}
	return ""
}

func visibleNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && v.IsVisible() {
			names = append(names, f.Names()...)
		}
	}
	return names
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
