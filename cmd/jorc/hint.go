package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/text"
)

// words is a command line with mistakes: the command that it names, and its arguments.
type words struct {
	command string // "jorc", "jorc cluster lock"
	all     []string
	at      []int // where the arguments stand in all
	dashed  bool  // "--" follows
}

// wordsOf reads a command line as far as it shows its command.
func wordsOf(app *cli.App, args []string) words {
	a := newArranger(app)
	w := words{all: args}
	for i := 0; i < len(args); i++ {
		if w.dashed = args[i] == "--"; w.dashed {
			break
		}
		if a.isFlag(args[i]) {
			taken, _ := a.flag(args[i], args[i+1:])
			i += taken
			continue
		}
		before := len(a.path)
		if err := a.argument(args[i]); err != nil || len(a.path) == before && !a.help {
			w.at = append(w.at, i)
		}
	}
	w.command = a.name()
	return w
}

func (w words) argument(i int) string { return w.all[w.at[i]] }

// replace is the command line with other words in place of argument i.
func (w words) replace(i int, with ...string) []string {
	return slices.Concat(w.all[:w.at[i]], with, w.all[w.at[i]+1:])
}

// hints are the command lines that were probably meant, by the command that a line
// names.
var hints = map[string]func(app *cli.App, w words) [][]string{
	"jorc": func(app *cli.App, w words) (lines [][]string) {
		name := w.argument(0)
		for _, c := range app.Commands {
			if !c.Hidden && find(c.Subcommands, name) != nil {
				lines = append(lines, w.replace(0, c.Name, name))
			}
		}
		return lines
	},
	"jorc cluster hold":   nodeArgument,
	"jorc cluster unhold": nodeArgument,
	"jorc cluster lock": func(_ *cli.App, w words) [][]string {
		if w.dashed || len(w.at) < 2 {
			return nil
		}
		return [][]string{w.replace(1, "--", w.argument(1))}
	},
	"jorc service resolve": func(_ *cli.App, w words) [][]string {
		name, domain, found := strings.Cut(strings.TrimSuffix(w.argument(0), "."), ".service.")
		if !found || domain != "consul" {
			return nil
		}
		i := strings.LastIndexByte(name, '.')
		with := []string{name[i+1:]}
		if i > 0 {
			with = append(with, "--tag", name[:i])
		}
		return [][]string{w.replace(0, with...)}
	},
	"jorc wait": func(_ *cli.App, w words) [][]string {
		for i := range w.at {
			if m := colonCount().FindStringSubmatch(w.argument(i)); m != nil {
				return [][]string{w.replace(i, m[1]+"="+m[2])}
			}
		}
		return nil
	},
	"jorc status set": func(_ *cli.App, w words) [][]string {
		exitCode := func(word string) bool { return strings.HasPrefix(strings.TrimLeft(word, "-"), "exit-code") }
		if len(w.at) != 2 || !slices.ContainsFunc(w.all, exitCode) {
			return nil
		}
		return [][]string{{"status", "set", w.argument(0), w.argument(1)}, w.replace(1)}
	},
}

// colonCount matches a target whose number follows a colon.
var colonCount = text.Pattern(`^([^:=]+):([0-9]+)$`)

func nodeArgument(_ *cli.App, w words) [][]string {
	if len(w.at) != 1 {
		return nil
	}
	return [][]string{w.replace(0, "--node", w.argument(0))}
}

// mostHints is how many commands a hint names at most.
const mostHints = 3

// hint names on w the command that was probably meant after a wrong usage, or after a
// failure to find a service.
func hint(w io.Writer, app *cli.App, args []string, err error) {
	line := wordsOf(app, args)
	of := hints[line.command]
	looked := line.command == "jorc wait" || line.command == "jorc service resolve"
	if err == nil || of == nil || len(line.at) == 0 || !looked && !errors.As(err, new(*usageError)) {
		return
	}
	lines := of(app, line)
	if len(lines) == 0 || len(lines) > mostHints {
		return
	}
	var meant []string
	for _, l := range lines {
		meant = append(meant, "'jorc "+printable(strings.Join(l, " "))+"'")
	}
	fmt.Fprintf(w, "jorc: hint: %s\n", strings.Join(meant, " or "))
}
