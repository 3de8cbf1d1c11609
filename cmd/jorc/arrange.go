package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/text"
)

// arrange brings a command line into the order that the library parses: the
// global flags, the command, its flags, "--", the arguments. The library itself
// stops looking for flags at the first argument. What stands after the first
// "--" is left as it is, that "--" included, so an action finds
//
//	ARG… [-- COMMAND ARG…]
//
// in its arguments (see splitDash). Flags are rewritten to --name=value with
// their first name; a flag that does not exist is a usageError with what was
// close.
func arrange(app *cli.App, args []string) ([]string, error) {
	a := newArranger(app)
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			a.rest = args[i:]
			i = len(args)
		case len(a.path) > 0 && a.path[len(a.path)-1].SkipFlagParsing && arg != "--help" && arg != "-h":
			a.arguments = append(a.arguments, arg)
		case a.isFlag(arg):
			taken, err := a.flag(arg, args[i+1:])
			if err != nil {
				return nil, err
			}
			i += taken
		default:
			if err := a.argument(arg); err != nil {
				return nil, err
			}
		}
	}
	if err := a.oldFlags(); err != nil {
		return nil, err
	}
	return a.line(), nil
}

type arranger struct {
	app       *cli.App
	path      []*cli.Command            // the command so far; empty at the root
	flags     map[*cli.Command][]string // by the command that they belong to; nil is the root
	arguments []string
	rest      []string     // from "--" on
	help      bool         // "jorc help COMMAND", or --help anywhere
	front     *cli.Command // of the flags in front of old names
}

func newArranger(app *cli.App) arranger {
	return arranger{app: app, flags: map[*cli.Command][]string{}, front: legacy.Front()}
}

// isFlag reports whether arg is a flag. "-" is standard input; a negative
// number, and a text that begins with three dashes as a PEM file does, are
// arguments.
func (a *arranger) isFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9') && !strings.HasPrefix(arg, "---")
}

// flag puts away one flag and returns how many of the arguments that follow
// were its value (0 or 1).
func (a *arranger) flag(arg string, following []string) (int, error) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	owner, f := a.lookup(name)
	if f == nil && !strings.HasPrefix(arg, "--") {
		if rest, ok := a.cluster(name); ok { // -ojson, -fn
			return 0, rest(value, hasValue)
		}
	}
	if f == nil && len(a.path) == 0 { // elsewhere --host means something else
		owner, f = a.front, flagNamed(a.front.Flags, name)
	}
	if f == nil {
		return 0, a.unknownFlag(name)
	}
	canonical := "--" + f.Names()[0]
	switch {
	case hasValue:
		a.add(owner, canonical+"="+value)
	case !takesValue(f):
		a.add(owner, canonical)
	case len(following) == 0 || following[0] == "--":
		return 0, a.usage("flag " + canonical + " needs a value")
	default:
		a.add(owner, canonical+"="+following[0])
		return 1, nil
	}
	return 0, nil
}

// cluster takes short flags that were written together: -fn, or -ojson when the
// first takes a value. ok reports whether they are.
func (a *arranger) cluster(letters string) (add func(value string, hasValue bool) error, ok bool) {
	if letters == "" {
		return nil, false
	}
	owner, first := a.lookup(letters[:1])
	if first == nil {
		return nil, false
	}
	if takesValue(first) {
		return func(value string, hasValue bool) error {
			text := letters[1:]
			if hasValue {
				text += "=" + value
			}
			a.add(owner, "--"+first.Names()[0]+"="+text)
			return nil
		}, true
	}
	for i := range len(letters) {
		if _, f := a.lookup(letters[i : i+1]); f == nil || takesValue(f) {
			return nil, false
		}
	}
	return func(_ string, hasValue bool) error {
		if hasValue {
			return a.usage("-" + letters + " takes no value")
		}
		for i := range len(letters) {
			owner, f := a.lookup(letters[i : i+1])
			a.add(owner, "--"+f.Names()[0])
		}
		return nil
	}, true
}

// argument descends into a command, or keeps an argument of the last one.
func (a *arranger) argument(arg string) error {
	if len(a.path) == 0 && arg == "help" && !a.help {
		a.help = true
		return nil
	}
	if len(a.arguments) == 0 {
		if c := find(a.commands(), arg); c != nil {
			a.path = append(a.path, c)
			return nil
		}
		if len(a.path) == 0 || len(a.commands()) > 0 && a.last().ArgsUsage == "" {
			return a.unknownCommand(arg)
		}
	}
	a.arguments = append(a.arguments, arg)
	return nil
}

// line is the command line in the library's order.
func (a *arranger) line() []string {
	line := slices.Clone(a.flags[nil])
	for _, c := range a.path {
		line = append(append(line, c.Name), a.flags[c]...)
	}
	if a.help { // the library would take arguments for the command to explain
		return append(line, "--help")
	}
	if len(a.arguments) > 0 || len(a.rest) > 0 {
		line = append(append(line, "--"), a.arguments...)
	}
	return append(line, a.rest...)
}

// lookup finds the innermost flag of that name; owner is nil for a global one.
func (a *arranger) lookup(name string) (owner *cli.Command, f cli.Flag) {
	for _, c := range slices.Backward(a.path) {
		if f := flagNamed(c.Flags, name); f != nil {
			return c, f
		}
	}
	return nil, flagNamed(a.app.Flags, name)
}

func (a *arranger) add(owner *cli.Command, flag string) {
	if name, _, _ := strings.Cut(flag, "="); name == "--help" {
		a.help = true
		return
	}
	a.flags[owner] = append(a.flags[owner], flag)
}

func (a *arranger) last() *cli.Command {
	if len(a.path) == 0 {
		return nil
	}
	return a.path[len(a.path)-1]
}

func (a *arranger) commands() []*cli.Command {
	if c := a.last(); c != nil {
		return c.Subcommands
	}
	return a.app.Commands
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// splitDash splits what an action got at the first "--": its own arguments, and
// the command to run. dashed reports whether there was a "--".
func splitDash(c *cli.Context) (args, command []string, dashed bool) {
	all := c.Args().Slice()
	if i := slices.Index(all, "--"); i >= 0 {
		return all[:i], all[i+1:], true
	}
	return all, nil, false
}

// arguments are those of a command that runs no other: a "--" only means that no
// flags follow.
func arguments(c *cli.Context) []string {
	before, after, _ := splitDash(c)
	return append(slices.Clone(before), after...)
}

// argument is the argument at index i; empty: it was not given.
func argument(c *cli.Context, i int) string {
	if args := arguments(c); i < len(args) {
		return args[i]
	}
	return ""
}

// arity is how many arguments a command takes.
type arity struct {
	required []string
	most     int  // -1: any number
	command  bool // what follows -- is another command
}

// arityOf reads the arguments in a usage line: "KEY [FILE]", "VERSION [HOST…]",
// "GROUP -- COMMAND ARG…".
func arityOf(usage string) arity {
	var n arity
	depth := 0
	for _, word := range strings.Fields(usage) {
		if strings.Contains(word, "--") {
			n.most, n.command = -1, strings.HasSuffix(word, "--")
			return n
		}
		depth += strings.Count(word, "[") - strings.Count(word, "[/")
		if depth == 0 {
			n.required = append(n.required, strings.TrimSuffix(word, "…"))
		}
		depth -= strings.Count(word, "]") - strings.Count(word, "[/")
		if n.most++; strings.Contains(word, "…") {
			n.most = -1
			return n
		}
	}
	return n
}

// check refuses missing and surplus arguments. An optional one that is empty comes
// from a variable that was not set: it must not mean all there is, or another
// cluster.
func (n arity) check(c *cli.Context) error {
	args := arguments(c)
	if n.command {
		args, _, _ = splitDash(c)
	}
	switch {
	case len(args) < len(n.required) && len(n.required) > 1:
		return usagef(c, "missing arguments %s", strings.Join(n.required, " and "))
	case len(args) < len(n.required):
		return usagef(c, "missing argument %s", n.required[0])
	case n.most == 0 && len(args) > 0:
		return usagef(c, "no arguments expected")
	case n.most >= 0 && len(args) > n.most:
		return usagef(c, "too many arguments")
	case n.most >= 0 && slices.Contains(args[len(n.required):], ""):
		return usagef(c, "an argument must not be empty: leave it out or give a name")
	}
	return nil
}

// oldFlags turns the flags in front of an old name into global ones. In front of another
// command they do not exist.
func (a *arranger) oldFlags() error {
	given := a.flags[a.front]
	if len(given) == 0 || a.help {
		return nil
	}
	if len(a.path) == 0 || !legacy.Is(a.path[0]) {
		a.path = nil // where it stood
		name, _, _ := strings.Cut(strings.TrimPrefix(given[0], "--"), "=")
		return a.unknownFlag(name)
	}
	for _, flag := range legacy.Global(given) {
		a.add(nil, flag)
	}
	return nil
}

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

// commandOf names the command that a line is for, as far as a line with mistakes
// shows it.
func commandOf(app *cli.App, args []string) string { return wordsOf(app, args).command }

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

// unknownFlag names what was close among the flags that are allowed here, or
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
