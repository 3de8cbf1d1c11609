package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/legacy"
	"github.com/jorc/jorc/internal/profile"
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
				Action:    env.onNamed(env.deleteCluster),
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
			legacy.Drpcli(legacyProgram{env}),
			pauseCommand(env),
			resumeCommand(env),
			holdCommand(env),
			unholdCommand(env),
			observeOnlyCommand(env),
			budgetCommand(env),
			freezeCommand(env),
			attentionCommand(env),
			depsCommand(env),
			filesCommand(env),
		}...),
	}
}

// shown is the answer of `cluster show -o json`.
type shown struct {
	Name        string        `json:"name"`
	Members     int           `json:"members"`
	Leaders     []string      `json:"leaders"`
	LeaderCount int           `json:"leader_count"`
	Managers    []string      `json:"managers"`
	Params      int           `json:"params"`
	Bytes       int           `json:"profile_bytes"`
	Limit       int           `json:"profile_limit"`
	Paused      *cluster.Hold `json:"paused"`
	ObserveOnly *cluster.Hold `json:"observe_only"`
	Held        *cluster.Hold `json:"held"` // the whole cluster
	// By role and by node; "off" is an exception from what is held more widely.
	HeldRoles map[string]cluster.Hold `json:"held_roles"`
	HeldNodes map[string]cluster.Hold `json:"held_nodes"`
	Freezes   []freezeShown           `json:"freezes"`
	// Damaged are the keys, below the cluster's, of the documents of hosts that cannot be
	// read; members whose records cannot be are not counted.
	Damaged []string `json:"damaged"`
	// Orchestrator is the node that orchestrates the cluster; nil: none.
	Orchestrator *orchestrates `json:"orchestrator"`
}

type orchestrates struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

func (e *environment) initCluster(c *cli.Context) error {
	name, leaders, manager := argument(c, 0), c.Int("leaders"), c.String("manager")
	if leaders < 0 || leaders > cluster.MaxLeaders {
		return usagef(c, "--leaders is %d, but must be 0 to %d", leaders, cluster.MaxLeaders)
	}
	for _, name := range []string{name, cmp.Or(manager, name)} {
		if err := text.CheckName(name); err != nil {
			return usagef(c, "%v", err)
		}
	}
	cl, err := e.cluster(c, name)
	if err != nil {
		return err
	}
	created, err := cl.Init(c.Context, fleet.InitOptions{Leaders: leaders, NoLeaders: leaders == 0, Manager: manager})
	if err != nil || created {
		return err
	}
	outcome := "nothing was changed"
	if manager != "" {
		added, err := cl.AddManager(c.Context, manager)
		switch {
		case err != nil:
			return err
		case added:
			outcome = manager + " is a manager now"
		}
	}
	if c.IsSet("leaders") {
		l, err := cl.Leaders(c.Context)
		if err != nil {
			return err
		}
		if l.Count != leaders {
			outcome += fmt.Sprintf("; its number of leaders is %d: change it with 'jorc cluster leader --count'", l.Count)
		}
	}
	note(c, "cluster %q exists already; %s", name, outcome)
	return nil
}

func (e *environment) listClusters(c *cli.Context) error {
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	all, err := fleet.List(c.Context, client, settings.Prefix)
	if err != nil {
		return err
	}
	return e.print(c, listingOf("name,members", all, func(s fleet.Summary) []string {
		return []string{s.Name, strconv.Itoa(s.Members)}
	}), all)
}

func (e *environment) deleteCluster(c *cli.Context, cl *target) error {
	if !c.Bool("yes") {
		return usagef(c, "this deletes cluster %q with its profile, members and history: confirm with --yes", cl.Name())
	}
	return cl.Delete(c.Context)
}

func (e *environment) showCluster(c *cli.Context) error {
	cl, err := e.cluster(c, argument(c, 0))
	if err != nil {
		return err
	}
	state, err := cl.Load(c.Context, cluster.NeedProfile|cluster.NeedControl)
	if err != nil {
		return err
	}
	if err := state.DamagedCluster(); err != nil {
		return err
	}
	if !state.Exists {
		_, err := cl.Profile(c.Context) // its error names what to do
		return err
	}
	damaged := slices.Sorted(maps.Keys(state.Damaged))
	state.Unreadable(unreadable(c))
	size := state.Profile.Size()
	s := shown{
		Name: cl.Name(), Members: len(state.Members(nil)), Leaders: append([]string{}, state.Leaders.Leader...), LeaderCount: state.Leaders.Count,
		Managers: append([]string{}, state.Managers()...), Params: len(state.Profile.Params), Bytes: size.Bytes, Limit: size.Limit,
		Paused: state.Control.Paused, ObserveOnly: state.Control.ObserveOnly, Held: state.Control.Hold,
		HeldRoles: map[string]cluster.Hold{}, HeldNodes: map[string]cluster.Hold{}, Freezes: []freezeShown{}, Damaged: append([]string{}, damaged...),
	}
	for _, f := range state.Control.Freezes {
		s.Freezes = append(s.Freezes, showFreeze(f, time.Now()))
	}
	maps.Copy(s.HeldRoles, state.Control.Roles)
	maps.Copy(s.HeldNodes, state.Control.Nodes)
	orchestrator := "none"
	switch h, held, err := fleet.Orchestrator(c.Context, cl.Store()); {
	case err != nil:
		orchestrator = "unknown: " + err.Error()
	case held:
		s.Orchestrator = &orchestrates{h.Node, h.Since}
		orchestrator = fmt.Sprintf("%s since %s", h.Node, when(h.Since))
	}
	l := rowsOf("what,value",
		[]string{"cluster", s.Name},
		[]string{"members", strconv.Itoa(s.Members)},
		[]string{"leaders", strings.TrimSpace(fmt.Sprintf("%s (%d of %d)", strings.Join(s.Leaders, ", "), len(s.Leaders), s.LeaderCount))},
		[]string{"managers", strings.Join(s.Managers, ", ")},
		[]string{"params", strconv.Itoa(s.Params)},
		[]string{"profile", size.String()},
		[]string{"orchestrator", orchestrator})
	l.rows = append(l.rows, holdRows(state.Control)...)
	if frozen, is := state.Control.Freezes.Any(time.Now()); is {
		l.rows = append(l.rows, []string{"freeze", frozen.String()})
	}
	if len(damaged) > 0 {
		l.rows = append(l.rows, []string{"damaged", strings.Join(damaged, ", ")})
	}
	return e.print(c, l, s)
}

func exportClusterCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print the whole cluster as JSON: profile, members, leaders, holds", ArgsUsage: "[NAME]",
		Description: "A record of a host that cannot be read, or that 'jorc cluster import' would refuse, is left out and named on stderr; " +
			"a hold that cannot be read counts as one. Exits 0 then, too.",
		Action: env.exportCluster,
	}
}

func importClusterCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "create a cluster from an export", ArgsUsage: "FILE",
		Description: "FILE may be - for stdin. The cluster gets the name in FILE, or that of --cluster. Exits 4 if a different cluster of that name exists; one whose profile is still as init creates it is overwritten.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "replace", Usage: "overwrite an existing cluster", DisableDefaultText: true}},
		Action:      env.importCluster,
	}
}

func bootstrapACLCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "bootstrap-acl",
		Usage: "print or create the ACL policies of agent, operator, orchestrator and Consul's DNS",
		Description: "The policies of agent and orchestrator allow one node (--node, default: this one) to write its own keys only; jorc-agent-web1 is " +
			"that of node web1, jorc-agent-web1_prod in cluster prod. Tokens are made from them with 'consul acl token create -policy-name'. " +
			"Where Consul denies by default, its DNS, and so 'jorc wait', also needs jorc-dns (node:read, service:read) for the token of type dns, or default, " +
			"of each Consul agent: 'consul acl set-agent-token dns TOKEN'. Repeating --create changes nothing; it renames policies with the names of earlier versions.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "elector", Usage: "also print the policy that agents of members that may lead need in addition", DisableDefaultText: true},
			&cli.BoolFlag{Name: "create", Usage: "create or update the policies in Consul", DisableDefaultText: true},
		},
		Action: env.bootstrapACL,
	}
}

func (e *environment) exportCluster(c *cli.Context) error {
	cl, err := e.cluster(c, argument(c, 0))
	if err != nil {
		return err
	}
	a, err := cl.Export(c.Context, unreadable(c))
	if err != nil {
		return err
	}
	v, err := profile.Of(a) // as all JSON of profiles is written: numbers as they are, members sorted
	if err != nil {
		return err
	}
	return printDocument(c, v)
}

func (e *environment) importCluster(c *cli.Context) error {
	file, r := argument(c, 0), e.values(c)
	data, err := r.file(file)
	if err != nil {
		return err
	}
	a, err := cluster.ParseArchive(data)
	if err != nil {
		return r.wrong(file, err)
	}
	name := a.Name
	if given, ok := e.value(c, "cluster"); ok {
		name = given
	}
	cl, err := e.cluster(c, name)
	if err != nil {
		return err
	}
	return cl.Import(c.Context, a, c.Bool("replace"))
}

// needsACLWrite names the right that creating a policy needs, if err is its lack.
func needsACLWrite(err error) string {
	if errors.Is(err, consul.ErrDenied) {
		return " (it needs acl:write)"
	}
	return ""
}

func (e *environment) bootstrapACL(c *cli.Context) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return err
	}
	policies := cl.Policies(node)
	if c.Bool("elector") {
		policies = append(policies, cl.ElectorPolicy())
	}
	policies = append(policies, fleet.DNSPolicy())
	for _, p := range policies {
		if !c.Bool("create") {
			break
		}
		changed, err := fleet.PutPolicy(c.Context, cl.client, p)
		if err != nil {
			return fmt.Errorf("create policy %q%s: %w", p.Name, needsACLWrite(err), err)
		}
		if changed {
			note(c, "wrote policy %s", p.Name)
		}
	}
	if e.format(c) == formatJSON {
		return writeJSON(c.App.Writer, policies)
	}
	for _, p := range policies {
		if _, err := fmt.Fprintf(c.App.Writer, "# %s: %s\n%s\n\n", p.Name, p.Description, p.Rules); err != nil {
			return err
		}
	}
	return nil
}
