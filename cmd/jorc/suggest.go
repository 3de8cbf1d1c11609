package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
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
	text := fmt.Sprintf("unknown command %q", name)
	if near := closest(name, known); near != "" {
		text += fmt.Sprintf(", did you mean %q?", near)
	}
	return a.usage(text)
}

// unknownFlag says what was close among the flags that are allowed here, or
// where a flag of that name belongs.
func (a *arranger) unknownFlag(name string) error {
	known := visibleNames(a.app.Flags)
	for _, c := range a.path {
		known = append(known, visibleNames(c.Flags)...)
	}
	text := "unknown flag " + dashes(name)
	if near := closest(name, known); near != "" {
		return a.usage(text + ", did you mean " + dashes(near) + "?")
	}
	if len(a.path) == 0 {
		if c := commandWithFlag(a.app.Commands, name, ""); c != "" {
			return a.usage(fmt.Sprintf("%s: it belongs behind its command: jorc %s %s", text, c, dashes(name)))
		}
	}
	return a.usage(text)
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

// closest is the candidate with the fewest edits, when these are few enough for
// a slip of the finger; else the only one that begins with name; else nothing.
func closest(name string, candidates []string) string {
	best, least := "", max(1, min(3, len(name)/3))+1
	for _, c := range candidates {
		if len(c) == 1 {
			continue
		}
		if d := edits(name, c); d < least {
			best, least = c, d
		}
	}
	if best != "" || len(name) < 2 {
		return best
	}
	begins := func(c string) bool { return strings.HasPrefix(c, name) }
	if i := slices.IndexFunc(candidates, begins); i >= 0 && !slices.ContainsFunc(candidates[i+1:], begins) {
		return candidates[i]
	}
	return ""
}

// edits counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b.
func edits(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
