package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/dev"
)

func devCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "try jorc: run a throw-away Consul, and an agent with an example or a fleet of hosts",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "hosts", DefaultText: "none", Usage: fmt.Sprintf("run a fleet of `N` hosts (%d to %d) on loopback addresses", dev.FewestHosts, dev.MostHosts)},
			&cli.StringFlag{Name: "first-address", Usage: "loopback `ADDRESS` of the fleet's first host; the others follow", Value: firstAddress},
			&cli.BoolFlag{Name: "env", Usage: "print what sets a shell to the fleet that is running", DisableDefaultText: true},
			&cli.StringFlag{Name: "keep", Usage: "keep the data in `DIR`, and reuse what it holds"},
		},
		Description: "Prints where everything is and what to try, and runs until Ctrl-C; then nothing is left. SIGHUP reloads the configuration. " +
			"Without --hosts one agent runs an example on free ports; with --config PATH that configuration replaces the example. " +
			"With --hosts each host has a Consul agent and a jorc agent, whose logs are files. 'eval \"$(jorc dev --env)\"' sets a shell to the fleet; " +
			"without one 'jorc dev --env' exits 1. " +
			"The Consul program is CONSUL_BIN, the one beside jorc, or the one on PATH. Neither Consul's environment variables nor a configuration's " +
			"consul, dns and http blocks and its state_dir count: all that is jorc dev's own.",
		Action: env.onLinux("jorc dev", env.dev),
	}
}

// firstAddress is that of a fleet's first host unless another one is given.
const firstAddress = "127.0.0.2"

// ofDev are the global flags that mean something to `jorc dev`.
var ofDev = [...]string{"output", "log-level"}

func (e *environment) dev(c *cli.Context) error {
	for _, s := range e.settings {
		if c.IsSet(s.Name) && !slices.Contains(ofDev[:], s.Name) {
			return usagef(c, "--%s cannot be given: jorc dev brings its own", s.Name)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	switch {
	case c.Bool("env"):
		return e.devEnv(c, self)
	case c.IsSet("hosts"):
		return e.devFleet(c, self)
	case c.IsSet("first-address"):
		return usagef(c, "--first-address needs --hosts or --env")
	}
	format := e.format(c)
	overrides, err := e.overrides(c)
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
		Hangup: e.hangup(c.Context), LookupEnv: os.LookupEnv, Process: e.processOptions(c), Version: e.build.Version, Commit: e.build.Commit,
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

// devFleet runs a fleet.
func (e *environment) devFleet(c *cli.Context, self string) error {
	n := c.Int("hosts")
	first, err := netip.ParseAddr(c.String("first-address"))
	switch {
	case n < dev.FewestHosts || n > dev.MostHosts:
		return usagef(c, "--hosts is %d, but must be %d to %d", n, dev.FewestHosts, dev.MostHosts)
	case c.IsSet("config"):
		return usagef(c, "--config cannot be given with --hosts: each host has its own")
	case err != nil:
		return usagef(c, "--first-address: %v", err)
	}
	if err := dev.CheckAddresses(first, n); err != nil {
		return usagef(c, "--first-address: %v", err)
	}
	level, _, err := e.logging(c)
	if err != nil {
		return err
	}
	program, err := dev.FindConsul(e.getenv("CONSUL_BIN"), self)
	if err != nil {
		return err
	}
	return dev.RunFleet(c.Context, dev.FleetOptions{
		Consul: program, Jorc: self, Keep: c.String("keep"), Hosts: n, First: first, LogLevel: level, Hangup: e.hangup(c.Context),
		Starting: func(dir string) error {
			note(c, "%d hosts are starting; their logs are in %s", n, filepath.Join(dir, "host-*"))
			return nil
		},
		Announce: func(f dev.Fleet) error {
			if e.format(c) == formatJSON {
				return writeJSON(c.App.Writer, f)
			}
			env, jorc := dev.Quoted(asCalled(self))+" dev --env", "jorc"
			if f.Hosts[0].Address != firstAddress {
				env += " --first-address " + f.Hosts[0].Address
			}
			if filepath.Base(self) != jorc {
				jorc = dev.Quoted(self)
			}
			_, err := fmt.Fprint(c.App.Writer, f.Text(env, jorc))
			return err
		},
	})
}

// devEnv prints the variables that set a shell to the fleet that is running.
func (e *environment) devEnv(c *cli.Context, self string) error {
	for _, flag := range []string{"hosts", "keep", "config"} {
		if c.IsSet(flag) {
			return usagef(c, "--env and --%s exclude each other", flag)
		}
	}
	f, err := dev.Running(c.Context, c.String("first-address"))
	if err != nil {
		if errors.Is(err, dev.ErrNoFleet) {
			err = fmt.Errorf("%w: start one with 'jorc dev --hosts 5' in another terminal", err)
		}
		return &exitError{code: exitFailed, err: err}
	}
	variables, err := e.ofConsul()
	if err != nil {
		return err
	}
	variables["CONSUL_HTTP_ADDR"], variables["JORC_CONFIG"], variables["JORC_CLUSTER"] = "http://"+f.Hosts[0].HTTPAddr, f.Hosts[0].Config, f.Cluster
	if asCalled(self) != "jorc" {
		variables["PATH"] = filepath.Dir(self) + string(os.PathListSeparator) + e.getenv("PATH")
	}
	if e.format(c) == formatJSON {
		return writeJSON(c.App.Writer, variables)
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		line := "export " + name + "=" + dev.Quoted(variables[name])
		if variables[name] == "" {
			line = "unset " + name
		}
		if _, err := fmt.Fprintln(c.App.Writer, line); err != nil {
			return err
		}
	}
	return nil
}

// ofConsul are the environment's variables about Consul and jorc that a configuration reads, without
// their values.
func (e *environment) ofConsul() (map[string]string, error) {
	found := map[string]string{}
	_, err := config.Load(nil, config.Options{Getenv: func(name string) string {
		if e.getenv(name) != "" && (strings.HasPrefix(name, "CONSUL_") || strings.HasPrefix(name, "JORC_")) {
			found[name] = ""
		}
		return ""
	}})
	return found, err
}
