package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/inventory"
	"github.com/jorc/jorc/internal/leaders"
	"github.com/jorc/jorc/internal/profile"
)

func joinCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "join",
		Usage: "make this host (or --node, which needs no host) a member, or change its member record",
		Description: "Settings without a flag stay unchanged; --role replaces all roles. Repeating it changes nothing. " +
			"A member block in the configuration of the host's agent decides: what it sets cannot be changed here. " + valueHelp,
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "role", Usage: "`ROLE` of the member; may be repeated"},
			&cli.StringFlag{Name: "zone", Usage: "failure `ZONE` of the member"},
			&cli.StringSliceFlag{Name: "param", KeepSpace: true, Usage: "param of the member, `K=V`; may be repeated"},
			&cli.StringSliceFlag{Name: "provides", Usage: "`SERVICE` that the member provides; may be repeated"},
			&cli.StringSliceFlag{Name: "requires", Usage: "`TARGET` that its static configuration requires, [TAG.]SERVICE[=N]; may be repeated"},
		}, valueFlags()...),
		Action: env.onCluster(env.joinCluster),
	}
}

func (e *environment) joinCluster(c *cli.Context, cl *target) error {
	r, given := e.values(c), profile.Params{}
	for _, arg := range c.StringSlice("param") {
		key, v, err := r.pair(arg)
		if err != nil {
			return err
		}
		given[key] = v
	}
	requires, err := requirements(c)
	if err != nil {
		return err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return err
	}
	// The configuration of this host's agent decides about its own member.
	block := cl.settings.Member != nil && (!c.IsSet("node") || node == cl.settings.Node)
	kept := false // an agent keeps what changes
	_, err = cl.Join(c.Context, node, func(have cluster.Record) (cluster.Record, error) {
		old := have
		if c.IsSet("role") {
			have.Roles = slices.Clone(c.StringSlice("role"))
		}
		if c.IsSet("zone") {
			have.Zone = c.String("zone")
		}
		if c.IsSet("provides") {
			have.Provides = slices.Sorted(slices.Values(c.StringSlice("provides")))
		}
		if c.IsSet("requires") {
			have.Requires = requires
		}
		for _, key := range given.Keys() {
			if have.Params, err = have.Params.Set(key, given[key], profile.Ref{}); err != nil {
				return have, err
			}
		}
		if kept = old.KeptDiffers(have); kept && block {
			return have, fmt.Errorf("join %q: the member block in the configuration of this host's agent decides its roles, zone and params; "+
				"nothing was changed: change the block", node)
		}
		return have, nil
	})
	if err == nil && kept {
		note(c, "warning: the agent on %s has a member block, which decides its roles, zone and params: while that agent runs it undoes this change", node)
	}
	if err != nil {
		return err
	}
	noteMissing(c, cl)
	return nil
}

// noteMissing notes that the cluster of members was never created.
func noteMissing(c *cli.Context, cl *target) {
	if members, err := cl.Uncreated(c.Context); err == nil && members > 0 {
		note(c, "cluster %q was never created: %s", cl.Name(), fleet.CreationHint(cl.Name()))
	}
}

// requirements reads --requires.
func requirements(c *cli.Context) ([]cluster.Requirement, error) {
	var all []cluster.Requirement
	for _, arg := range c.StringSlice("requires") {
		target, count, counted := strings.Cut(arg, "=")
		r := cluster.Requirement{Target: target}
		if counted {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				return nil, usagef(c, "--requires %q: the number of instances is not one", arg)
			}
			r.Count = n
		}
		all = append(all, r)
	}
	return all, nil
}

func leaveCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:   "leave",
		Usage:  "end the membership of this host, or of --node",
		Action: env.onCluster(env.leaveCluster),
		Description: "The member no longer leads or manages. A running jorc agent with a member block joins again. " +
			"It is not an error if the node is not a member.",
	}
}

func (e *environment) leaveCluster(c *cli.Context, cl *target) error {
	node, err := e.ownNode(c)
	if err != nil {
		return err
	}
	left, err := cl.Leave(c.Context, node, cl.MayBelieve(c.Context, node))
	if err == nil && !left {
		note(c, "node %q is no member of cluster %q%s", node, cl.Name(), after("; ", unknownHost(c, cl, node)))
	}
	return err
}

// unknownHost is the error about a host that does not exist; empty: it does, or
// that is not known. Commands whose goal is that it is gone report it and succeed.
func unknownHost(c *cli.Context, cl *target, node string) string {
	if err := cl.CheckHost(c.Context, node); errors.Is(err, cluster.ErrNoHost) {
		return err.Error()
	}
	return ""
}

func noteUnknownHost(c *cli.Context, cl *target, node string) {
	if text := unknownHost(c, cl, node); text != "" {
		note(c, "%s", text)
	}
}

func membersCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "members",
		Usage: "list members",
		Description: "EXPR is an expression such as 'Zone == \"a\" and \"db\" in Roles and Params[\"disks\"] != 4' over " +
			strings.Join(cluster.FieldNames(), ", ") + "; a missing value is false or empty. " +
			"FIELDS are these or single entries of them, such as Params.disks. " +
			"--format ansible makes a dynamic inventory of Ansible: groups by role, zone and health, and the effective params " +
			"as variables jorc_param_NAME, without secrets.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "filter", Usage: "only members that `EXPR` matches"},
			&cli.BoolFlag{Name: "cluster-filter", Usage: "only members that the param cluster/filter matches", DisableDefaultText: true},
			&cli.StringFlag{Name: "role", Usage: "only members with `ROLE`"},
			&cli.BoolFlag{Name: "count", Usage: "print only their number", DisableDefaultText: true},
			&cli.StringFlag{Name: "fields", Usage: "print these `FIELDS`, separated by commas"},
			&cli.StringFlag{Name: "sort", Usage: "sort by `FIELD`; prefix with - to sort descending"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N` members", DefaultText: "all"},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + formatAnsible},
			&cli.BoolFlag{Name: "list", Usage: "with --format ansible: print the groups and all hosts (the default)", DisableDefaultText: true},
			&cli.StringFlag{Name: "host", Usage: "with --format ansible: print the variables of `HOST`"},
		},
		Action: env.listMembers,
	}
}

// memberColumns are what a table shows without --fields.
const memberColumns = "Node,Address,Zone,Roles,Version,Health,Agent"

// formatAnsible is the value of --format for a dynamic inventory.
const formatAnsible = "ansible"

// inventoryAsked reports whether --format asks for an inventory, and checks the flags
// that go with it.
func inventoryAsked(c *cli.Context) (bool, error) {
	if !c.IsSet("format") {
		if c.IsSet("list") || c.IsSet("host") {
			return false, usagef(c, "--list and --host need --format ansible")
		}
		return false, nil
	}
	if err := oneOf(c, "format", c.String("format"), formatAnsible); err != nil {
		return false, err
	}
	for _, other := range []string{"count", "fields", "sort"} {
		if c.IsSet(other) {
			return false, usagef(c, "--format and --%s exclude each other", other)
		}
	}
	if c.Bool("list") && c.IsSet("host") {
		return false, usagef(c, "--list and --host exclude each other")
	}
	return true, nil
}

// writeInventory prints an inventory, or the variables of one host in it.
func (e *environment) writeInventory(c *cli.Context, cl *target, all []cluster.Member) error {
	p, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	hosts := inventory.ForAnsible(cl.Name(), p, all)
	if !c.IsSet("host") {
		return writeJSON(c.App.Writer, hosts)
	}
	vars, ok := hosts.Host(c.String("host"))
	if !ok {
		return fmt.Errorf("host %q is not in the inventory: 'jorc cluster members' lists the members", c.String("host"))
	}
	return writeJSON(c.App.Writer, vars) // Ansible's format, without the cluster's name
}

func (e *environment) listMembers(c *cli.Context) error {
	ansible, err := inventoryAsked(c)
	if err != nil {
		return err
	}
	filter, err := filterOf(c)
	if err != nil {
		return err
	}
	columns, order, err := memberFields(c)
	if err != nil {
		return err
	}
	whole := e.format(c) == formatJSON && !c.IsSet("fields")
	o := fleet.MembersOptions{Filter: filter, Need: order.Need(), Unreadable: unreadable(c)}
	if !c.Bool("count") {
		for _, column := range columns {
			o.Need |= column.Need()
		}
		if whole || ansible {
			o.Need = cluster.NeedAll
		}
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	if c.Bool("cluster-filter") {
		own, err := cl.Filter(c.Context)
		if err != nil {
			return err
		}
		o.Filter = cluster.AllOf(o.Filter, own)
	}
	all, err := cl.Members(c.Context, o)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		noteMissing(c, cl)
	}
	if role := c.String("role"); role != "" {
		all = slices.DeleteFunc(all, func(m cluster.Member) bool { return !slices.Contains(m.Roles, role) })
		if len(all) == 0 {
			if err := cl.CheckRole(c.Context, role); err != nil {
				return err
			}
		}
	}
	order.Sort(all, strings.HasPrefix(c.String("sort"), "-"))
	if c.IsSet("limit") {
		all = all[:min(len(all), c.Int("limit"))]
	}
	switch {
	case ansible:
		return e.writeInventory(c, cl, all)
	case c.Bool("count"):
		_, err := fmt.Fprintln(c.App.Writer, len(all))
		return err
	case whole:
		return e.writeJSON(c.App.Writer, all)
	}
	return e.printMembers(c, columns, all)
}

// filterOf reads --filter.
func filterOf(c *cli.Context) (*cluster.Filter, error) {
	filter, err := cluster.ParseFilter(c.String("filter"))
	if err != nil {
		return nil, usagef(c, "--%v", err)
	}
	return filter, nil
}

func memberFields(c *cli.Context) (columns []cluster.Column, order cluster.Column, err error) {
	names := memberColumns
	if c.IsSet("fields") {
		names = c.String("fields")
	}
	for name := range strings.SplitSeq(names, ",") {
		column, err := cluster.ParseColumn(strings.TrimSpace(name))
		if err != nil {
			return nil, order, usagef(c, "--fields: %v", err)
		}
		columns = append(columns, column)
	}
	if order, err = cluster.ParseColumn(cmp.Or(strings.TrimPrefix(c.String("sort"), "-"), "Node")); err != nil {
		return nil, order, usagef(c, "--sort: %v", err)
	}
	return columns, order, notNegative(c, "limit")
}

func (e *environment) printMembers(c *cli.Context, columns []cluster.Column, all []cluster.Member) error {
	objects := make([]map[string]any, len(all))
	l := listing{states: []string{"health", "agent"}}
	for _, column := range columns {
		l.columns = append(l.columns, strings.ToLower(column.Name))
	}
	for i := range all {
		row := make([]string, len(columns))
		objects[i] = map[string]any{}
		for j, column := range columns {
			row[j] = column.Text(&all[i])
			objects[i][column.Key] = column.JSON(&all[i])
		}
		l.rows = append(l.rows, row)
	}
	return e.print(c, l, objects)
}

func leaderCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "leader",
		Usage: "show or elect leaders",
		Description: "Prints one leader per line; exits 1 if there is none. With --elect, eligible members fill vacancies at random, healthy ones first; leaders stay. " +
			"The param cluster/leader-eligible of a member, of its roles or of the cluster makes members eligible or not; by default all are but managers " +
			"and members that the param cluster/filter leaves out. " +
			"A failing leader is watched if a healthy member could lead, and replaced after failing for --grace without a break. " +
			"The members' agents do the same on their own. " +
			"With --self it prints nothing: it exits 0 if this host (or --node) leads, 1 if it does not, and 2 or more if that is not known.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "elect", Usage: "fill vacancies now", DisableDefaultText: true},
			&cli.DurationFlag{Name: "grace", Usage: "with --elect: wait for `D` for a failing leader to recover; 0 does not wait and replaces none", DefaultText: "param cluster/leader-grace, or 30s"},
			&cli.IntFlag{Name: "count", Usage: "set the number of leaders to `N`", DefaultText: "unchanged"},
			&cli.BoolFlag{Name: "self", Usage: "report by the exit code whether this host leads", DisableDefaultText: true},
		},
		Action: env.showLeaders,
	}
}

func (e *environment) showLeaders(c *cli.Context) error {
	if n := c.Int("count"); c.IsSet("count") && (n < 1 || n > cluster.MaxLeaders) {
		return usagef(c, "--count is %d, but must be 1 to %d", n, cluster.MaxLeaders)
	}
	if g := c.Duration("grace"); c.IsSet("grace") && (g < 0 || !c.Bool("elect")) {
		return usagef(c, "--grace needs --elect and must not be negative")
	}
	if c.Bool("self") {
		if c.IsSet("count") || c.Bool("elect") {
			return usagef(c, "--self excludes --elect and --count")
		}
		return e.leadsItself(c)
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	l, err := elect(c, cl)
	if err != nil {
		return err
	}
	answer := l.Document()
	if e.format(c) == formatJSON {
		err = e.writeJSON(c.App.Writer, answer)
	} else { // a line per leader is the promise
		err = listingOf("leader", l.Leader, func(node string) []string { return []string{node} }).writePlain(c.App.Writer)
	}
	if err != nil || len(l.Leader) > 0 {
		return err
	}
	if len(answer.Retired) > 0 {
		note(c, "%s led until now and may not have noticed yet: try again in a few seconds", strings.Join(answer.Retired, ", "))
	}
	return errNo
}

// leadsItself reports by its exit code whether this host leads. No other error has
// the exit code 1.
func (e *environment) leadsItself(c *cli.Context) error {
	leads, err := e.leads(c)
	switch {
	case err != nil && classify(err) == exitFailed:
		return &exitError{code: exitUsage, err: err}
	case err != nil:
		return err
	}
	return answerOf(leads)
}

func (e *environment) leads(c *cli.Context) (bool, error) {
	cl, err := e.cluster(c, "")
	if err != nil {
		return false, err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return false, err
	}
	if _, err := cl.Profile(c.Context); err != nil {
		return false, err
	}
	l, err := cl.Leaders(c.Context)
	return l.Leads(node), err
}

// elect does what the flags ask for and returns the leaders afterwards.
func elect(c *cli.Context, cl *target) (cluster.Leaders, error) {
	if !c.IsSet("count") && !c.Bool("elect") {
		return cl.Leaders(c.Context)
	}
	if _, err := cl.Profile(c.Context); err != nil {
		return cluster.Leaders{}, err
	}
	if c.IsSet("count") {
		if err := cl.SetCount(c.Context, c.Int("count")); err != nil {
			return cluster.Leaders{}, err
		}
	}
	grace := c.Duration("grace")
	if !c.Bool("elect") || c.IsSet("grace") && grace == 0 {
		return cl.Elect(c.Context)
	}
	if !c.IsSet("grace") {
		var err error
		if grace, err = leaders.GracePeriod(c.Context, cl.Cluster); err != nil {
			return cluster.Leaders{}, err
		}
	}
	// The place of a retired leader stays empty for as long as always.
	return leaders.ElectAndWait(c.Context, cl.Cluster, cluster.Timing{Replace: grace}, func(failing, retired []string) {
		for _, node := range failing {
			note(c, "leader %s is failing: replaced if it has not recovered in %s", node, grace)
		}
		for _, node := range retired {
			note(c, "%s led until now and may not have noticed yet: its place is filled in a few seconds", node)
		}
	})
}
