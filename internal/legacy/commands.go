package legacy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/doctor"
)

// Files of old systems.
const (
	servicesFile = "/etc/puppet/hiera/data/services.yaml"
	versionFile  = "current_version" // below /etc
)

// ErrPuppetDisabled is the error of check_puppet while convergence is held.
var ErrPuppetDisabled = errors.New("puppet is disabled")

// names carries out what stands behind the old names.
type names struct{ Program }

// Commands returns the old names, hidden.
func Commands(p Program) []*cli.Command {
	n := names{p}
	hostname := func() cli.Flag { return &cli.StringFlag{Name: "hostname", Usage: "`HOST`", DefaultText: "this one"} }
	status := func(name string) *cli.Command {
		return &cli.Command{
			Name: name, Usage: "status set", ArgsUsage: "TYPE RESULT", Flags: []cli.Flag{hostname()},
			Description: "TYPE is puppet, puppet_service, validation, validation_service, config or provisioned; RESULT is a state or an exit code.",
			Action:      n.updateStatus,
		}
	}
	all := []*cli.Command{
		{Name: "trigger_update", Usage: "update trigger", ArgsUsage: "VERSION", Action: n.calls(Command{Name: "update trigger"})},
		{Name: "current_version", Usage: "update current", Action: n.currentVersion},
		{Name: "pending_update", Usage: "update pending", Action: n.calls(Command{Name: "update pending", VersionFile: versionFile})},
		{Name: "local_version", Usage: "update local", ArgsUsage: "[VERSION]", Action: n.localVersion},
		{
			Name: "update_own_info", Usage: "update report", Action: n.updateOwnInfo,
			Flags: []cli.Flag{hostname(), &cli.StringFlag{Name: "version", Usage: "`VERSION`", DefaultText: "that of the version file"}},
		},
		{Name: "running_versions", Usage: "update running", Action: n.calls(Command{Name: "update running"})},
		{Name: "hosts_at_version", Usage: "update hosts", ArgsUsage: "VERSION", Action: n.calls(Command{Name: "update hosts"})},
		{Name: "verify_hosts", Usage: "update verify", ArgsUsage: "VERSION [HOST…]", Action: n.verifyHosts},
		{
			Name: "check_single_version", Usage: "update single", ArgsUsage: "VERSION", Action: n.checkSingleVersion,
			Flags: []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say what runs besides", DisableDefaultText: true}},
		},
		status("update_status"),
		status("update_own_status"),
		{
			Name: "get_failures", Usage: "status failures", Action: n.getFailures,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "hosts", Usage: "only the names of the hosts", DisableDefaultText: true},
				&cli.BoolFlag{Name: "show_warnings", Usage: "also warnings", DisableDefaultText: true},
			},
		},
		{
			Name: "local_health", Usage: "health", Action: n.localHealth,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "show warnings, too", DisableDefaultText: true},
				&cli.DurationFlag{Name: "timeout", Value: doctor.DefaultTimeout, Usage: "wait at most this long for each answer"},
			},
		},
		{
			Name: "publish_service", Usage: "register services under addresses of this host", ArgsUsage: "[[HOST] [INTERFACE=]ADDRESS… SERVICE…]",
			Description: "Each SERVICE is registered with each ADDRESS as tagged address, under the name of the interface that has it. " +
				"Without arguments it registers the services of this host's configuration.",
			Action: n.publishService,
		},
		{
			Name: "cache_services", Usage: "service export --format hiera", Action: n.cacheServices,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "format", Value: "hiera", Usage: "`FORMAT`"},
				&cli.StringFlag{Name: "file", Value: servicesFile, Usage: "`FILE` to replace"},
			},
		},
		{Name: "check_puppet", Usage: "exit 9 while convergence is held on this host", ArgsUsage: "[HOST]", Action: n.checkPuppet},
		refused("debug_timeout", "'jorc update why' on the host that is late"),
		refused("upgrade_status", "'jorc update show'"),
		refused("enable_puppet", "'jorc cluster unhold --node HOST' (and 'jorc cluster hold')"),
		refused("set_config", "'jorc cluster profile set KEY VALUE' (--role R, --node N)"),
		refused("manage_config", "'jorc cluster profile set|get|remove KEY' (--role R, --node N)"),
		refused("host_data", "'jorc cluster profile get KEY --node HOST --effective'"),
	}
	for _, c := range all {
		c.Hidden, c.Category = true, category
	}
	return all
}

// calls is an action that is another command.
func (n names) calls(command Command) cli.ActionFunc {
	return func(c *cli.Context) error { return n.Do(c, command) }
}

// open returns the cluster, which must exist.
func (n names) open(c *cli.Context) (Target, error) {
	t, err := n.Open(c, "")
	if err != nil {
		return t, err
	}
	return t, t.CheckExists(c.Context)
}

// currentVersion prints the desired version, or None.
func (n names) currentVersion(c *cli.Context) error {
	t, err := n.Open(c, "")
	if err != nil {
		return err
	}
	version, err := t.Desired(c.Context)
	if err == nil && version == "" {
		err = t.CheckExists(c.Context)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.App.Writer, cmp.Or(version, "None"))
	return err
}

// localVersion prints or writes the version of the version file. A host without one is not an error.
func (n names) localVersion(c *cli.Context) error {
	err := n.Do(c, Command{Name: "update local", VersionFile: versionFile})
	if errors.Is(err, cluster.ErrNoVersion) {
		return nil
	}
	return err
}

func (n names) updateOwnInfo(c *cli.Context) error {
	command := Command{Name: "update report", VersionFile: versionFile}
	if host := c.String("hostname"); host != "" {
		command.Flags = map[string]string{"host": host}
	}
	return n.Do(c, command)
}

// verifyHosts names the hosts that do not run a version in its error alone.
func (n names) verifyHosts(c *cli.Context) error {
	var out bytes.Buffer
	err := n.Do(c, Command{Name: "update verify", Flags: map[string]string{"output": "json"}, Stdout: &out})
	var missing []cluster.OtherHost
	if out.Len() == 0 || json.Unmarshal(out.Bytes(), &missing) != nil || len(missing) == 0 {
		return err
	}
	var hosts []string
	for _, m := range missing {
		hosts = append(hosts, m.Host)
	}
	return fmt.Errorf("not at version %s: %s", argument(c, 0), strings.Join(hosts, " "))
}

// checkSingleVersion answers by its exit code.
func (n names) checkSingleVersion(c *cli.Context) error {
	command := Command{Name: "update single"}
	if !c.Bool("verbose") {
		command.Stdout, command.Stderr = io.Discard, io.Discard
	}
	return n.Do(c, command)
}

func (n names) updateStatus(c *cli.Context) error {
	category := argument(c, 0)
	s, err := cluster.ParseResult(category, argument(c, 1))
	if err != nil {
		return err
	}
	t, err := n.open(c)
	if err != nil {
		return err
	}
	if err := cluster.CheckState(category, s.State); err != nil {
		return err
	}
	host, err := n.Node(c, t, c.String("hostname"))
	if err != nil {
		return err
	}
	_, err = t.SetState(c.Context, host, category, s)
	return err
}

func (n names) getFailures(c *cli.Context) error {
	return n.Do(c, Command{Name: "status failures", Flags: map[string]string{"warnings": strconv.FormatBool(c.Bool("show_warnings"))}})
}

// localHealth lists failing checks as health does, and the failed states that this host reported: a failed puppet
// or validation makes a host script run Puppet again.
func (n names) localHealth(c *cli.Context) error {
	return n.Health(c, func() ([]doctor.CheckState, error) {
		t, err := n.open(c)
		if err != nil {
			return nil, err
		}
		host, err := n.Node(c, t, "")
		if err != nil {
			return nil, err
		}
		report, _, err := t.Report(c.Context, host)
		if err != nil {
			return nil, err
		}
		var failed []doctor.CheckState
		for _, category := range slices.Sorted(maps.Keys(report.States)) {
			if s := report.States[category]; s.State == cluster.StateFailed {
				failed = append(failed, doctor.CheckState{CheckID: category, Check: category, State: s.State, Output: s.Detail})
			}
		}
		return failed, nil
	})
}

func (n names) cacheServices(c *cli.Context) error {
	return n.Do(c, Command{Name: "service export", Flags: map[string]string{"format": c.String("format"), "file": c.String("file")}})
}

// checkPuppet returns ErrPuppetDisabled while convergence is held on the host.
func (n names) checkPuppet(c *cli.Context) error {
	t, err := n.open(c)
	if err != nil {
		return err
	}
	host, err := n.Node(c, t, argument(c, 0))
	if err != nil {
		return err
	}
	if argument(c, 0) == "" {
		if reason := agent.HoldReason(t.Settings.StateDir); reason != "" {
			return disabled("convergence on this host is " + reason)
		}
	}
	control, err := t.ControlOf(c.Context, host)
	if err != nil {
		return err
	}
	record, err := t.Record(c.Context, host)
	if err != nil && !errors.Is(err, cluster.ErrNoMember) {
		return err
	}
	if h, held := control.Held(host, record.Roles); held {
		return disabled(fmt.Sprintf("convergence is held on %s: %s", host, h))
	}
	return nil
}

// disabled is ErrPuppetDisabled with its reason as text.
type disabled string

func (d disabled) Error() string { return string(d) }

func (disabled) Is(target error) bool { return target == ErrPuppetDisabled }

// refused is a command of the old orchestrator without an equivalent; it says what to use instead.
func refused(name, instead string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: "not supported", SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			if args := c.Args().Slice(); slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return cli.ShowSubcommandHelp(c)
			}
			return usage(c, fmt.Errorf("%s is not supported: use %s", name, instead))
		},
	}
}
