package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// host is the process's environment; tests have their own.
type host struct {
	etc            string // /etc: the configuration of this host's agent is below it
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	hangup         func(context.Context) <-chan struct{} // SIGHUPs, from the call on
	build          build
	environ        func() []string
	author         func() string                                   // OS user and host, as a hint at who makes a change; nil: $USER
	exec           func(path string, args, environ []string) error // replaces the process; returns only when it cannot
	guard          []string                                        // a command line that guards the command which follows it; see guard
}

// commands is the command tree: one noun per line.
func commands(env *environment) []*cli.Command {
	return append(aliasCommands(env), []*cli.Command{
		agentCommand(env),
		clusterCommand(env),
		renderCommand(env),
		configCommand(env),
		devCommand(env),
		doctorCommand(env),
		healthCommand(env),
		pingCommand(env),
		completionCommand(env),
		manCommand(env),
		serviceCommand(env),
		updateCommand(env),
		statusCommand(env),
		versionCommand(env),
		waitCommand(env),
		workflowCommand(env),
	}...)
}

// run executes one command line (without the program's name) and returns the
// exit code. It reads and writes nothing but what h holds.
func run(ctx context.Context, args []string, h host) int {
	stdout, stderr := safe(h.stdout), safe(h.stderr)
	defer func() { _ = stderr.flush() }() // there is nowhere left to report it
	h.stdout, h.stderr = stdout, stderr
	app := newApp(h)
	if len(args) > 0 && args[0] == completeCommand {
		complete(underlying(h.stdout), app, args[1:])
		return exitOK
	}
	normal, err := arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, normal...))
	}
	err = answered(endedBy(ctx, err), stdout.flush())
	report(h.stderr, err)
	return exitCode(app, args, err)
}

// newApp builds the command tree over h.
func newApp(h host) *cli.App {
	env := newEnvironment(h)
	app := &cli.App{
		Name:           "jorc",
		HelpName:       "jorc",
		Usage:          "assemble, configure and update a fleet of plain hosts that run Consul",
		UsageText:      "jorc [flags] COMMAND [flags] [arguments] [-- COMMAND ARG…]",
		Flags:          append(globalFlags(), helpFlag(), &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}),
		Commands:       commands(env),
		Reader:         h.stdin,
		Writer:         h.stdout,
		ErrWriter:      h.stderr,
		HideHelp:       true,
		HideVersion:    true,
		OnUsageError:   onUsageError,
		ExitErrHandler: func(*cli.Context, error) {}, // run reports and maps; nothing below main exits
		Action:         env.root,
		After: func(*cli.Context) error {
			for _, client := range env.clients {
				client.Close()
			}
			return nil
		},

		// A comma is part of a value: flags that may be given more than once are
		// given more than once.
		DisableSliceFlagSeparator: true,
	}
	slices.SortFunc(app.Commands, func(a, b *cli.Command) int { return strings.Compare(a.Name, b.Name) })
	arrangeGroups(app.Commands, rootGroups)
	app.CustomAppHelpTemplate = groupedHelp(cli.AppHelpTemplate, app.Commands, rootGroups)
	for _, c := range app.Commands {
		groups := map[string][]group{"cluster": clusterGroups}[c.Name]
		finish(c, "jorc", groups)
	}
	app.Setup()
	return app
}

// root runs when no command was given.
func (e *environment) root(c *cli.Context) error {
	if c.Bool("version") {
		return e.printVersion(c)
	}
	return cli.ShowAppHelp(c)
}

// onUsageError words what the library found wrong with a flag's value.
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := strings.TrimSuffix(err.Error(), ": parse error")
	for _, before := range []string{" for flag -", " for -"} { // values, and boolean values
		text = strings.Replace(text, before, " for flag --", 1)
	}
	if m := unitless.FindStringSubmatch(text); m != nil && isDuration(c, m[2]) {
		text += fmt.Sprintf(": a duration needs a unit; write --%s %ss for seconds", m[2], m[1])
	}
	return usagef(c, "%s", text)
}

// unitless matches the error about a flag whose value is a number.
var unitless = regexp.MustCompile(`^invalid value "([0-9.]+)" for flag --([a-z-]+)$`)

// isDuration reports whether a flag of the command is a duration.
func isDuration(c *cli.Context, name string) bool {
	if c.Command == nil {
		return false
	}
	_, ok := flagNamed(c.Command.Flags, name).(*cli.DurationFlag)
	return ok
}

// usagef is an error in how a command was called.
func usagef(c *cli.Context, format string, args ...any) error {
	name := "jorc"
	if c != nil && c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	return &usageError{command: name, text: fmt.Sprintf(format, args...)}
}
