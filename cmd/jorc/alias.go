package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/nodes"
)

// legacyServicesFile is a file that existing host scripts use.
const legacyServicesFile = "/etc/puppet/hiera/data/services.yaml"

// legacyVersion is the version file of existing host scripts.
func (e *environment) legacyVersion() string { return filepath.Join(e.etc, "current_version") }

// aliasCommands are names that existing host scripts use. They are hidden, and
// --host ADDR --port N before them mean the Consul agent's address.
func aliasCommands(env *environment) []*cli.Command {
	hostname := func() cli.Flag { return &cli.StringFlag{Name: "hostname", Usage: "`HOST`", DefaultText: "this one"} }
	report := func(name string) *cli.Command {
		return &cli.Command{
			Name: name, Usage: "status set", ArgsUsage: "TYPE RESULT", Flags: []cli.Flag{hostname()},
			Description: "TYPE is puppet, config, validation or provisioned, RESULT a state or an exit code.",
			Action:      env.updateStatus,
		}
	}
	all := []*cli.Command{
		{Name: "trigger_update", Usage: "update trigger", ArgsUsage: "VERSION", Action: func(c *cli.Context) error { return env.trigger(c, true) }},
		{Name: "current_version", Usage: "update current", Action: env.currentVersionOrNone},
		{Name: "pending_update", Usage: "update pending", Action: func(c *cli.Context) error { return env.pendingUpdate(c, env.legacyVersion()) }},
		{Name: "local_version", Usage: "update local", ArgsUsage: "[VERSION]", Action: env.localVersionOrNothing},
		{
			Name: "update_own_info", Usage: "update report",
			Flags:  []cli.Flag{hostname(), &cli.StringFlag{Name: "version", Usage: "`VERSION`", DefaultText: "that of the version file"}},
			Action: func(c *cli.Context) error { return env.reportVersion(c, c.String("hostname"), env.legacyVersion()) },
		},
		{Name: "running_versions", Usage: "update running", Action: env.runningVersions},
		{Name: "hosts_at_version", Usage: "update hosts", ArgsUsage: "VERSION", Action: env.hostsAtVersion},
		{Name: "verify_hosts", Usage: "update verify", ArgsUsage: "VERSION [HOST…]", Action: env.verifyHostsQuietly},
		{
			Name: "check_single_version", Usage: "update single", ArgsUsage: "VERSION", Action: env.checkSingleVersion,
			Flags: []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say what runs besides", DisableDefaultText: true}},
		},
		report("update_status"),
		report("update_own_status"),
		{
			Name: "get_failures", Usage: "status failures", Action: func(c *cli.Context) error { return env.listFailures(c, c.Bool("show_warnings")) },
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "hosts", Usage: "only the names of the hosts", DisableDefaultText: true},
				&cli.BoolFlag{Name: "show_warnings", Usage: "also warnings", DisableDefaultText: true},
			},
		},
		{
			Name: "local_health", Usage: "health", Action: env.health,
			Flags: []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "show warnings, too", DisableDefaultText: true}, timeoutFlag()},
		},
		publishServiceCommand(env),
		{
			Name: "cache_services", Usage: "service export --format hiera", Action: env.exportServices,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "format", Value: "hiera", Usage: "`FORMAT`"},
				&cli.StringFlag{Name: "file", Value: legacyServicesFile, Usage: "`FILE` to replace"},
			},
		},
	}
	for _, c := range all {
		c.Hidden, c.Category = true, legacyCategory
	}
	return all
}

func (e *environment) currentVersionOrNone(c *cli.Context) error {
	version, err := e.desiredVersion(c)
	if err != nil {
		return err
	}
	if version == "" {
		version = "None"
	}
	_, err = fmt.Fprintln(c.App.Writer, version)
	return err
}

func (e *environment) localVersionOrNothing(c *cli.Context) error {
	err := e.readOrWriteLocal(c, e.legacyVersion())
	if errors.Is(err, nodes.ErrNoVersion) {
		return nil
	}
	return err
}

func (e *environment) verifyHostsQuietly(c *cli.Context) error {
	version, hosts, missing, err := e.elsewhere(c)
	switch {
	case err != nil:
		return err
	case hosts == 0:
		return errNoHosts
	case len(missing) == 0:
		return nil
	}
	var names []string
	for _, m := range missing {
		names = append(names, m.Host)
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("not at version %s: %s", version, strings.Join(names, " "))}
}

func (e *environment) checkSingleVersion(c *cli.Context) error {
	if c.Bool("verbose") {
		return e.singleVersion(c)
	}
	s, err := e.singleness(c)
	if err == nil && !s.Single {
		err = &exitError{code: exitFailed}
	}
	return err
}

func (e *environment) updateStatus(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 2 {
		return usagef(c, "which type, and which result?")
	}
	s, err := nodes.ParseResult(args[0], args[1])
	if err != nil {
		return err
	}
	return e.recordState(c, c.String("hostname"), args[0], s)
}
