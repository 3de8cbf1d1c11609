package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/runs"
	"github.com/jorc/jorc/internal/text"
)

func clusterCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "cluster",
		Usage: "form clusters, run work on members, look at them, lock, administer",
		Subcommands: append(append(append(slotsCommands(env), runsCommands(env)...), orchestratorCommands(env)...), []*cli.Command{
			{
				Name:      "init",
				Usage:     "create a cluster",
				ArgsUsage: "NAME",
				Description: "Creates the cluster's profile; repeating it changes nothing. Members that join are elected leaders, at random, " +
					"until there are N; with --leaders 0 none is, until 'cluster leader --elect --count N'. In a cluster that exists, --manager adds the manager.",
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "leaders", Usage: "number `N` of leaders", Value: 1},
					&cli.StringFlag{Name: "manager", Usage: "`NODE` that coordinates and takes no part in the work; it needs no host"},
				},
				Action: env.initCluster,
			},
			{Name: "list", Usage: "list the clusters below the prefix", Action: env.listClusters},
			{Name: "show", Usage: "show a cluster's status", ArgsUsage: "[NAME]", Action: env.showCluster},
			{
				Name:      "delete",
				Usage:     "delete a cluster and all of its keys",
				ArgsUsage: "[NAME]",
				Flags:     []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "confirm", DisableDefaultText: true}},
				Action:    env.deleteCluster,
			},
			bootstrapACLCommand(env),
			exportClusterCommand(env),
			importClusterCommand(env),
			joinCommand(env),
			leaveCommand(env),
			membersCommand(env),
			leaderCommand(env),
			profileCommand(env),
			metaCommand(env),
			drpcliCommand(env),
			pauseCommand(env),
			resumeCommand(env),
			holdCommand(env),
			unholdCommand(env),
			observeOnlyCommand(env),
			depsCommand(env),
		}...),
	}
}

// cluster is the cluster that flags and environment name, or name when that is
// not empty.
func (e *environment) cluster(c *cli.Context, name string) (*cluster.Cluster, error) {
	client, settings, err := e.consul(c)
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = settings.Cluster
	}
	e.reportTarget(c, settings, name)
	return cluster.New(client, settings.Prefix, name).WithValidators(map[string]profile.Validator{runs.ParamRules: runs.CheckRules}), nil
}

// reportTarget names the cluster that a command acts on, with --verbose; a JSON
// answer names it, too.
func (e *environment) reportTarget(c *cli.Context, settings *config.Config, name string) {
	e.answers = name
	if c.Command != nil && flagNamed(c.Command.Flags, "verbose") != nil {
		return // a flag of the command's own
	}
	if c.Bool("verbose") {
		fmt.Fprintf(c.App.ErrWriter, "jorc: cluster %q below prefix %q of Consul at %s\n", name, settings.Prefix, settings.Consul.Address)
	}
}

// existing is the cluster that flags and environment name, or name when that is
// not empty. It fails unless that cluster exists.
func (e *environment) existing(c *cli.Context, name string) (*cluster.Cluster, error) {
	cl, err := e.cluster(c, name)
	if err != nil {
		return nil, err
	}
	return cl, cl.CheckExists(c.Context)
}

// ownNode is the node that --node or JORC_NODE names, or the local agent's.
func (e *environment) ownNode(c *cli.Context) (string, error) {
	if node, given := e.value(c, "node"); given {
		return node, nil
	}
	client, _, err := e.consul(c)
	if err != nil {
		return "", err
	}
	self, err := client.AgentSelf(c.Context)
	if err != nil {
		return "", fmt.Errorf("find this host's node name (--node or JORC_NODE sets it): %w", err)
	}
	return self.Config.NodeName, nil
}

// optional is the one argument that may be given; empty when it is not. One that
// is empty itself comes from a variable that was not set: it must not mean
// all there is, or for another cluster.
func optional(c *cli.Context) (string, error) {
	args := arguments(c)
	switch {
	case len(args) > 1:
		return "", usagef(c, "too many arguments")
	case len(args) == 1 && args[0] == "":
		return "", usagef(c, "an argument must not be empty: leave it out or give a name")
	}
	return strings.Join(args, ""), nil
}

// none checks that there is no argument.
func none(c *cli.Context) error {
	if len(arguments(c)) > 0 {
		return usagef(c, "no arguments expected")
	}
	return nil
}

func (e *environment) initCluster(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument NAME")
	}
	leaders, manager := c.Int("leaders"), c.String("manager")
	if leaders < 0 || leaders > cluster.MaxLeaders {
		return usagef(c, "--leaders is %d, but must be 0 to %d", leaders, cluster.MaxLeaders)
	}
	for _, name := range []string{args[0], cmp.Or(manager, args[0])} {
		if err := text.CheckName(name); err != nil {
			return usagef(c, "%v", err)
		}
	}
	cl, err := e.cluster(c, args[0])
	if err != nil {
		return err
	}
	created, err := cl.Init(c.Context, cluster.InitOptions{Leaders: leaders, NoLeaders: leaders == 0, Manager: manager})
	if err != nil || created {
		return err
	}
	text := "nothing was changed"
	if manager != "" {
		added, err := cl.AddManager(c.Context, manager)
		switch {
		case err != nil:
			return err
		case added:
			text = manager + " is a manager now"
		}
	}
	if c.IsSet("leaders") {
		l, err := cl.Leaders(c.Context)
		if err != nil {
			return err
		}
		if l.Count != leaders {
			text += fmt.Sprintf("; its number of leaders is %d: change it with 'jorc cluster leader --count'", l.Count)
		}
	}
	fmt.Fprintf(c.App.ErrWriter, "jorc: cluster %q exists already; %s\n", args[0], text)
	return nil
}

func (e *environment) listClusters(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	all, err := cluster.List(c.Context, client, settings.Prefix)
	if err != nil {
		return err
	}
	l := listing{columns: []string{"name", "members"}}
	for _, s := range all {
		l.rows = append(l.rows, []string{s.Name, strconv.Itoa(s.Members)})
	}
	return e.print(c, l, all)
}

func (e *environment) deleteCluster(c *cli.Context) error {
	name, err := optional(c)
	if err != nil {
		return err
	}
	cl, err := e.existing(c, name)
	if err != nil {
		return err
	}
	if !c.Bool("yes") {
		return usagef(c, "this deletes cluster %q with its profile, members and history: confirm with --yes", cl.Name())
	}
	return cl.Delete(c.Context)
}
