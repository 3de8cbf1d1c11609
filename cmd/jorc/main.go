// Command jorc is the daemon that runs beside a host's Consul agent and the
// operator's command line. This package holds the command tree: one file per
// noun, no logic.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/command"
	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/licenses"
	"github.com/jorc/jorc/internal/text"
)

// Stamped by the Makefile through -ldflags.
var (
	version = ""
	commit  = ""
	date    = ""
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardArg {
		os.Exit(guard(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == processGuardArg {
		os.Exit(guardProcess(os.Args[2:]))
	}
	os.Exit(run(untilSignal(), os.Args[1:], host{
		etc:     "/etc",
		getenv:  os.Getenv,
		environ: os.Environ,
		author:  func() string { return osUser(os.Getenv) },
		stdin:   os.Stdin,
		stdout:  keepWriteErrors(os.Stdout, syscall.Stdout),
		stderr:  keepWriteErrors(os.Stderr, syscall.Stderr),
		journal: toJournal,
		hangup:  hangups,
		exec:    become,
		guard:   guardSelf(guardArg),
		process: guardSelf(processGuardArg),
		build:   stamped(version, commit, date),
	}))
}

// guardArg, as the first argument, makes jorc the guard of the command whose
// path and arguments follow.
const guardArg = "guard-command"

// processGuardArg is the same for a supervised process.
const processGuardArg = "guard-process"

// guardSelf is the command line of a guard. On Linux its program is the one that runs,
// also when there is another at its path by now.
func guardSelf(arg string) []string {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", arg}
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return []string{self, arg}
}

// guard runs a command for as long as the jorc that started this one is there. The
// signals that end the command's group pass it by.
func guard(args []string) int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT)
	return command.Guarded(args, os.Stdout, os.Stderr)
}

// guardProcess runs a supervised process for as long as the jorc that started this
// one is there, and passes on signals.
func guardProcess(args []string) int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	return command.GuardedProcess(args, signals, os.Stdout, os.Stderr)
}

// untilSignal returns a context that SIGINT or SIGTERM ends, with the signal as its
// cause. The second signal ends the process the hard way.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &signalContext{Context: ctx, cancel: cancel}
}

// signalContext listens for signals from the first use on. A command that waits for
// nothing does without the threads that this takes, and a signal ends it as it ends any
// program.
type signalContext struct {
	context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
}

func (c *signalContext) Done() <-chan struct{} {
	c.once.Do(c.listen)
	return c.Context.Done()
}

func (c *signalContext) Err() error {
	c.once.Do(c.listen)
	return c.Context.Err()
}

func (c *signalContext) listen() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // libraries may write to os.Stderr; see keepWriteErrors
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		if s, ok := (<-signals).(syscall.Signal); ok {
			c.cancel(signalError{s})
		}
	}()
}

// hangups delivers SIGHUPs until ctx ends. Without a call a SIGHUP ends the process.
func hangups(ctx context.Context) <-chan struct{} {
	signals, out := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// host is the process's environment; tests have their own.
type host struct {
	etc            string // /etc: the configuration of this host's agent is below it
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	journal        func() bool                           // whether stderr is systemd's journal; nil: it is not
	hangup         func(context.Context) <-chan struct{} // SIGHUPs, from the call on
	build          build
	environ        func() []string
	author         func() string                                   // OS user and host, as a hint at who makes a change; nil: $USER
	exec           func(path string, args, environ []string) error // replaces the process; returns only when it cannot
	completionTime time.Duration                                   // bounds how long completion reads names; 0: completionTime
	guard          []string                                        // a command line that guards the command which follows it; see guard
	process        []string                                        // the same for a supervised process; see guardProcess
}

// nouns are the commands without the names that old systems use.
var nouns = [...]string{
	"agent", "cluster", "render", "config", "debug", "dev", "doctor", "health", "ping", "completion", "maintenance", "man", "migrate", "ui", "service", "update",
	"stage", "change", "status", "template", "version", "wait", "workflow",
}

// noun builds one command with all below it; nil: no command has that name.
func noun(env *environment, name string) *cli.Command {
	switch name {
	case "agent":
		return agentCommand(env)
	case "cluster":
		return clusterCommand(env)
	case "render":
		return renderCommand(env)
	case "config":
		return configCommand(env)
	case "debug":
		return debugCommand(env)
	case "dev":
		return devCommand(env)
	case "doctor":
		return doctorCommand(env)
	case "health":
		return healthCommand(env)
	case "ping":
		return pingCommand(env)
	case "completion":
		return completionCommand(env)
	case "maintenance":
		return maintenanceCommand(env)
	case "man":
		return manCommand(env)
	case "migrate":
		return migrateCommand(env)
	case "ui":
		return uiCommand(env)
	case "service":
		return serviceCommand(env)
	case "update":
		return updateCommand(env)
	case "stage":
		return stageCommand(env)
	case "change":
		return changeCommand(env)
	case "status":
		return statusCommand(env)
	case "template":
		return templateCommand(env)
	case "version":
		return versionCommand(env)
	case "wait":
		return waitCommand(env)
	case "workflow":
		return workflowCommand(env)
	}
	return nil
}

// commands is the whole command tree.
func commands(env *environment) []*cli.Command {
	all := legacy.Commands(legacyProgram{env})
	for _, name := range nouns {
		all = append(all, noun(env, name))
	}
	return all
}

// run executes one command line (without the program's name) and returns the
// exit code. It reads and writes nothing but what h holds.
func run(ctx context.Context, args []string, h host) int {
	stdout, stderr := safe(h.stdout), safe(h.stderr)
	defer func() { _ = stderr.flush() }() // there is nowhere left to report it
	h.stdout, h.stderr = stdout, stderr
	if len(args) > 0 && args[0] == completeCommand {
		h.stderr = io.Discard
		env := newEnvironment(h)
		complete(ctx, underlying(h.stdout), env, wholeApp(env), args[1:])
		return exitOK
	}
	app, normal, err := parse(h, args)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, normal...))
	}
	err = answered(endedBy(ctx, err), stdout.flush())
	if err != nil && h.journal != nil && h.journal() {
		report(errorLines{journalWriter{h.stderr}}, err)
	} else {
		report(h.stderr, err)
	}
	hint(h.stderr, app, args, err)
	return exitCode(app, args, err)
}

// parse returns the command tree and the arranged command line. The whole tree with its
// help takes longer to build than most commands take, so the first argument that names a
// command decides which is built. The whole tree is built if that is not the one that the
// command line calls, for help, and for errors, which name what is close.
func parse(h host, args []string) (app *cli.App, normal []string, err error) {
	isNoun := func(arg string) bool { return slices.Contains(nouns[:], arg) && arg != "man" } // the page is about all commands
	if i := slices.IndexFunc(args, isNoun); i >= 0 {
		env := newEnvironment(h)
		app = appOf(env, []*cli.Command{noun(env, args[i])}, globalFlags(env.settings))
		if normal, err = arrange(app, args); err == nil && calls(normal, args[i]) {
			app.Flags = given(app.Flags, normal)
			return app, normal, nil
		}
	}
	app = newApp(h)
	normal, err = arrange(app, args)
	return app, normal, err
}

// calls reports whether an arranged command line calls a command and does not ask for help.
func calls(normal []string, name string) bool {
	if i := slices.Index(normal, "--"); i >= 0 {
		normal = normal[:i]
	}
	return slices.Contains(normal, name) && !slices.Contains(normal, "--help")
}

// newApp builds the whole command tree over h.
func newApp(h host) *cli.App { return wholeApp(newEnvironment(h)) }

// wholeApp builds the whole command tree with its help.
func wholeApp(env *environment) *cli.App {
	app := appOf(env, commands(env), globalFlags(env.settings))
	slices.SortFunc(app.Commands, func(a, b *cli.Command) int { return strings.Compare(a.Name, b.Name) })
	arrangeGroups(app.Commands, rootGroups)
	app.CustomAppHelpTemplate = groupedHelp(cli.AppHelpTemplate, app.Commands, rootGroups)
	for _, c := range app.Commands {
		explain(c, "jorc", map[string][]group{"cluster": clusterGroups}[c.Name])
	}
	app.Setup()
	return app
}

// appOf builds an app without help.
func appOf(env *environment, commands []*cli.Command, flags []cli.Flag) *cli.App {
	for _, c := range commands {
		env.finish(c, "jorc")
	}
	return &cli.App{
		Name:           "jorc",
		HelpName:       "jorc",
		Usage:          "assemble, configure and update a fleet of plain hosts that run Consul",
		UsageText:      "jorc [flags] COMMAND [flags] [arguments] [-- COMMAND ARG…]",
		Flags:          append(flags, helpFlag(), &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}),
		Commands:       commands,
		Reader:         env.stdin,
		Writer:         env.stdout,
		ErrWriter:      env.stderr,
		Compiled:       time.Unix(0, 0), // else the library reads the time of the program's file
		HideHelp:       true,
		HideVersion:    true,
		OnUsageError:   onUsageError,
		ExitErrHandler: func(*cli.Context, error) {}, // run reports and maps; nothing below main exits
		Action:         env.root,
		After: func(*cli.Context) error {
			if env.client != nil {
				env.client.Close()
			}
			return nil
		},

		// A comma is part of a value: flags that may be given more than once are
		// given more than once.
		DisableSliceFlagSeparator: true,
	}
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
	if m := unitless().FindStringSubmatch(text); m != nil && isDuration(c, m[2]) {
		text += fmt.Sprintf(": a duration needs a unit; write --%s %ss for seconds", m[2], m[1])
	}
	return usagef(c, "%s", text)
}

// unitless matches the error about a flag whose value is a number.
var unitless = text.Pattern(`^invalid value "([0-9.]+)" for flag --([a-z-]+)$`)

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

// build is what this program was built from.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Date     string `json:"date"` // of the commit, RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// stamped completes what the linker was given with what Go knows about a binary
// that was built without the Makefile.
func stamped(version, commit, date string) build {
	b := build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b.Version == "" { // else there is nothing to parse at each start
		b.readInfo()
	}
	for _, field := range []*string{&b.Version, &b.Commit, &b.Date} {
		if *field == "" {
			*field = "unknown"
		}
	}
	return b
}

// readInfo completes b with what Go stamped.
func (b *build) readInfo() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	if v := info.Main.Version; v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
}

func versionCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version and build information, or the licenses",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "licenses", Usage: "print jorc's license, and those of all modules that the program contains", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			if c.Bool("licenses") {
				return env.printLicenses(c)
			}
			return env.printVersion(c)
		},
	}
}

// printLicenses prints the text of NOTICE.
func (e *environment) printLicenses(c *cli.Context) error {
	notice, err := licenses.Notice()
	if err != nil {
		return err
	}
	if e.format(c) == formatJSON {
		return e.writeJSON(c.App.Writer, struct {
			Notice string `json:"notice"`
		}{notice})
	}
	_, err = io.WriteString(c.App.Writer, notice)
	return err
}

func (e *environment) printVersion(c *cli.Context) error {
	format := e.format(c)
	b := e.build
	if format == formatTable {
		_, err := fmt.Fprintf(c.App.Writer, "jorc %s (commit %s, %s, %s, %s)\n", b.Version, b.Commit, b.Date, b.Go, b.Platform)
		return err
	}
	return e.print(c, listing{rows: [][]string{{b.Version, b.Commit, b.Date, b.Go, b.Platform}}}, b)
}
