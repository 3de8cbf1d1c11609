package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

func updateCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "update",
		Usage: "versions: the desired one, its rollout, and what hosts run",
		Subcommands: append([]*cli.Command{
			triggerCommand(env),
			{
				Name: "current", Usage: "print the desired version",
				Description: "Exits 1 when no version was triggered.",
				Action:      env.currentVersion,
			},
			{
				Name: "pending", Usage: "report by exit code whether this host has a pending update",
				Description: "Compares the desired version with that of the version file. Exits 0 when an update is pending, 1 when none is, " +
					"2 when Consul is unreachable and this host has a version, 3 when no version was triggered, or Consul is unreachable and this host has none, 64 on wrong usage.",
				Action: func(c *cli.Context) error { return env.pendingUpdate(c, "") },
			},
			{
				Name: "local", Usage: "print the version of this host's version file, or write it", ArgsUsage: "[VERSION]",
				Description: "Exits 1 when there is no version yet. The file is replaced whole or not at all.",
				Action:      env.localVersion,
			},
			{
				Name: "report", Usage: "report which version this host runs",
				Description: "Without --version that of the version file; without any version it does nothing.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "host", Usage: "report for `HOST`", DefaultText: "this one"},
					&cli.StringFlag{Name: "version", Usage: "it runs `VERSION`", DefaultText: "that of the version file"},
				},
				Action: func(c *cli.Context) error {
					if c.IsSet("host") && c.String("host") == "" {
						return usagef(c, "--host must not be empty")
					}
					return env.reportVersion(c, c.String("host"), "")
				},
			},
			{Name: "running", Usage: "list running versions", Action: env.runningVersions},
			{Name: "hosts", Usage: "list the hosts that run a version", ArgsUsage: "VERSION", Action: env.hostsAtVersion},
			{
				Name: "verify", Usage: "check that hosts run a version", ArgsUsage: "VERSION [HOST…]",
				Description: "Hosts also come from standard input, separated by white space: without HOST, or where it is -. " +
					"Lists those that do not run it, and what they run. Exits 0 only when all do; no host at all is 1.",
				Action: env.verifyHosts,
			},
			{
				Name: "single", Usage: "check that a version is the only running one", ArgsUsage: "VERSION",
				Description: "Lists the other versions. Hosts that are down or not in Consul's catalog do not count and are listed separately. " +
					"Exits 0 when it is the only one, 1 if it is not, or no host runs it.",
				Action: env.singleVersion,
			},
			showRolloutCommand(env),
			whyCommand(env),
			waitRolloutCommand(env),
		}, operateCommands(env)...),
	}
}

// ledger is what the nodes of the cluster report, and the settings it came from.
func (e *environment) ledger(c *cli.Context) (*cluster.Cluster, *consul.Client, *config.Config, error) {
	client, settings, err := e.consul(c)
	if err != nil {
		return nil, nil, nil, err
	}
	e.reportTarget(c, settings, settings.Cluster)
	cl := cluster.New(client, settings.Prefix, settings.Cluster)
	if err := cl.CheckExists(c.Context); err != nil {
		client.Close()
		return nil, nil, nil, err
	}
	return cl, client, settings, nil
}

// desired reads the desired version. Without a version it returns
// cluster.ErrNoCluster for a cluster that does not exist; hosts that ask often make
// no other request.
func desired(ctx context.Context, cl *cluster.Cluster) (string, error) {
	version, err := cl.Desired(ctx)
	if err == nil && version == "" {
		err = cl.CheckExists(ctx)
	}
	return version, err
}

// hostNamed is the host that a command is about: the one that was named, this
// one by its setting, or the local agent's node. It fails for the name of a host
// that does not exist.
func hostNamed(c *cli.Context, client *consul.Client, settings *config.Config, name string) (string, error) {
	switch {
	case name != "" && name != settings.Node:
		return name, cluster.New(client, settings.Prefix, settings.Cluster).CheckHost(c.Context, name)
	case settings.Node != "":
		return settings.Node, nil
	}
	self, err := client.AgentSelf(c.Context)
	if err != nil {
		return "", fmt.Errorf("find this host's node name (--node or JORC_NODE sets it): %w", err)
	}
	return self.Config.NodeName, nil
}

// lines prints an answer of one word or one per line; with -o as it asks for.
func (e *environment) lines(c *cli.Context, column string, words []string, v any) error {
	l := listing{columns: []string{column}}
	for _, w := range words {
		l.rows = append(l.rows, []string{w})
	}
	if _, given := e.value(c, "output"); !given {
		return l.writePlain(c.App.Writer)
	}
	return e.print(c, l, v)
}

// versionAnswer is the answer of commands about one version; it is empty when
// no version is known.
type versionAnswer struct {
	Version string `json:"version"`
}

func (e *environment) currentVersion(c *cli.Context) error {
	version, err := e.desiredVersion(c)
	if err != nil {
		return err
	}
	var words []string
	if version != "" {
		words = []string{version}
	}
	if err := e.lines(c, "version", words, versionAnswer{version}); err != nil || version != "" {
		return err
	}
	return errors.New("no desired version set: 'jorc update trigger VERSION' sets it")
}

func (e *environment) desiredVersion(c *cli.Context) (string, error) {
	if err := noArguments(c); err != nil {
		return "", err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return "", err
	}
	return desired(c.Context, cl)
}

func (e *environment) runningVersions(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := ledger.LoadReports(c.Context)
	if err != nil {
		return err
	}
	versions := s.RunningVersions()
	return e.lines(c, "version", versions, append([]string{}, versions...))
}

func (e *environment) hostsAtVersion(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument VERSION")
	}
	if err := cluster.CheckVersion(args[0]); err != nil {
		return err
	}
	ledger, client, _, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := ledger.LoadReports(c.Context)
	if err != nil {
		return err
	}
	hosts := s.HostsRunning(args[0])
	return e.lines(c, "host", hosts, append([]string{}, hosts...))
}
