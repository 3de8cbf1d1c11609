package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/dev"
)

func devCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "try jorc: run a throw-away Consul, an agent and an example on free ports",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "keep", Usage: "keep the data in `DIR`, and reuse what it holds"},
		},
		Description: "Prints where everything is and what to try, and runs until Ctrl-C; then nothing is left. SIGHUP reloads the configuration. " +
			"With --config PATH that configuration replaces the example. " +
			"The Consul program is CONSUL_BIN, the one beside jorc, or the one on PATH. Neither Consul's environment variables nor a configuration's " +
			"consul, dns and http blocks and its state_dir count: all that is jorc dev's own.",
		Action: env.dev,
	}
}

// ofDev are the global flags that mean something to `jorc dev`.
var ofDev = [...]string{"output", "log-level"}

func (e *environment) dev(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	for name := range e.settings {
		if c.IsSet(name) && !slices.Contains(ofDev[:], name) {
			return usagef(c, "--%s cannot be given: jorc dev brings its own", name)
		}
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	overrides, err := e.overrides(c)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := dev.FindConsul(e.getenv("CONSUL_BIN"), self)
	if err != nil {
		return err
	}
	return dev.Run(c.Context, dev.Options{
		Consul: program, Keep: c.String("keep"), Config: c.StringSlice("config"),
		Announce: func(p dev.Places) error {
			if format == formatJSON {
				return writeJSON(c.App.Writer, p)
			}
			_, err := fmt.Fprint(c.App.Writer, p.Text(asCalled(self)))
			return err
		},
		Overrides: overrides,
		Logger: func(level string, json bool) hclog.Logger {
			log := e.logger(level, json)
			bridgeStandardLog(log)
			return log
		},
		Hangup: e.hangup(c.Context), LookupEnv: os.LookupEnv, Version: e.build.Version, Commit: e.build.Commit,
	})
}

// asCalled is "jorc" where that finds self, else its path.
func asCalled(self string) string {
	if found, err := exec.LookPath("jorc"); err == nil {
		there, err1 := os.Stat(found)
		here, err2 := os.Stat(self)
		if err1 == nil && err2 == nil && os.SameFile(there, here) {
			return "jorc"
		}
	}
	return self
}
