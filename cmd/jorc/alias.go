package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/legacy"
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
			Description: "TYPE is puppet, puppet_service, validation, validation_service, config or provisioned; RESULT is a state or an exit code.",
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
		{Name: "running_versions", Usage: "update running", Action: env.onCluster(env.runningVersions)},
		{Name: "hosts_at_version", Usage: "update hosts", ArgsUsage: "VERSION", Action: env.hostsAtVersion},
		{Name: "verify_hosts", Usage: "update verify", ArgsUsage: "VERSION [HOST…]", Action: env.verifyHostsQuietly},
		{
			Name: "check_single_version", Usage: "update single", ArgsUsage: "VERSION", Action: env.onCluster(env.checkSingleVersion),
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
			Name: "local_health", Usage: "health", Action: env.localHealth,
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
	all = append(all, &cli.Command{
		Name: "check_puppet", Usage: "exit 9 while convergence is held on this host", ArgsUsage: "[HOST]", Action: env.onCluster(env.checkPuppet),
	})
	for _, r := range legacy.Refused() {
		all = append(all, &cli.Command{
			Name: r.Name, Usage: "not supported", SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				if args := c.Args().Slice(); slices.Contains(args, "--help") || slices.Contains(args, "-h") {
					return cli.ShowSubcommandHelp(c)
				}
				return usagef(c, "%s is not supported: use %s", r.Name, r.Instead)
			},
		})
	}
	for _, c := range all {
		c.Hidden, c.Category = true, legacyCategory
	}
	return all
}

// exitPuppetDisabled is the exit code of check_puppet that scripts know.
const exitPuppetDisabled = 9

// checkPuppet exits with exitPuppetDisabled while convergence is held on the host.
func (e *environment) checkPuppet(c *cli.Context, cl *target) error {
	host, err := e.hostNamed(c, cl, argument(c, 0))
	if err != nil {
		return err
	}
	if argument(c, 0) == "" {
		if reason := agent.HoldReason(cl.settings.StateDir); reason != "" {
			return &exitError{code: exitPuppetDisabled, err: fmt.Errorf("convergence on this host is %s", reason)}
		}
	}
	control, err := cl.ControlOf(c.Context, host)
	if err != nil {
		return err
	}
	record, err := cl.Record(c.Context, host)
	if err != nil && !errors.Is(err, cluster.ErrNoMember) {
		return err
	}
	if h, held := control.Held(host, record.Roles); held {
		return &exitError{code: exitPuppetDisabled, err: fmt.Errorf("convergence is held on %s: %s", host, h)}
	}
	return nil
}

// localHealth lists failing checks as health does, and the failed states that
// this host reported: a failed puppet or validation makes a host script run
// Puppet again.
func (e *environment) localHealth(c *cli.Context) error {
	return e.healthWith(c, func() ([]doctor.CheckState, error) {
		cl, err := e.existing(c, "")
		if err != nil {
			return nil, err
		}
		e.answers = "" // the answer is about this host
		host, err := e.ownNode(c)
		if err != nil {
			return nil, err
		}
		d, _, err := cl.Report(c.Context, host)
		if err != nil {
			return nil, err
		}
		var failed []doctor.CheckState
		for _, category := range slices.Sorted(maps.Keys(d.States)) {
			if s := d.States[category]; s.State == cluster.StateFailed {
				failed = append(failed, doctor.CheckState{CheckID: category, Check: category, State: s.State, Output: s.Detail})
			}
		}
		return failed, nil
	})
}

func (e *environment) currentVersionOrNone(c *cli.Context) error {
	version, err := e.desired(c)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.App.Writer, cmp.Or(version, "None"))
	return err
}

func (e *environment) localVersionOrNothing(c *cli.Context) error {
	err := e.localVersion(c, e.legacyVersion())
	if errors.Is(err, cluster.ErrNoVersion) {
		return nil
	}
	return err
}

func (e *environment) verifyHostsQuietly(c *cli.Context) error {
	missing, err := e.notAtVersion(c)
	if err != nil || len(missing) == 0 {
		return err
	}
	var names []string
	for _, m := range missing {
		names = append(names, m.Host)
	}
	return &exitError{code: exitFailed, err: fmt.Errorf("not at version %s: %s", argument(c, 0), strings.Join(names, " "))}
}

func (e *environment) checkSingleVersion(c *cli.Context, cl *target) error {
	if c.Bool("verbose") {
		return e.singleVersion(c, cl)
	}
	s, err := cl.rollouts().Unique(c.Context, argument(c, 0))
	if err != nil {
		return err
	}
	return singleAnswer(s)
}

func (e *environment) updateStatus(c *cli.Context) error {
	s, err := cluster.ParseResult(argument(c, 0), argument(c, 1))
	if err != nil {
		return err
	}
	return e.recordState(c, c.String("hostname"), argument(c, 0), s)
}

func publishServiceCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "publish_service", Usage: "register services under addresses of this host", ArgsUsage: "[[HOST] [INTERFACE=]ADDRESS… SERVICE…]",
		Description: "Each SERVICE is registered with each ADDRESS as tagged address, under the name of the interface that has it. " +
			"Without arguments it registers the services of this host's configuration.",
		Action: env.publishServices,
	}
}

func (e *environment) publishServices(c *cli.Context) error {
	var p legacy.Published
	var err error
	args := arguments(c)
	if len(args) > 0 {
		if p, err = legacy.ParsePublished(args); err != nil {
			return usagef(c, "%v", err)
		}
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	services := settings.Services
	if len(args) > 0 {
		if p.Host != "" {
			own, err := e.ownNode(c)
			if err != nil {
				return err
			}
			if own != p.Host {
				return fmt.Errorf("services are published on the host that has them: this is %s, not %s", own, p.Host)
			}
		}
		interfaces, err := legacy.Interfaces()
		if err != nil {
			return fmt.Errorf("find the interfaces: %w", err)
		}
		services = p.Definitions(interfaces)
	}
	for _, s := range services {
		// An agent that runs with the same configuration has registered its services.
		_, err := catalog.Publish(c.Context, client, settings.StateDir, s)
		if err != nil && (len(args) > 0 || !errors.Is(err, catalog.ErrConfigured)) {
			return conflict(err)
		}
	}
	return nil
}
