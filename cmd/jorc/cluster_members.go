package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
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
		Action: env.joinCluster,
	}
}

func (e *environment) joinCluster(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	r := e.values(c)
	given := profile.Params{}
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
	block, err := e.memberBlock(c, node)
	if err != nil {
		return err
	}
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
	if err != nil {
		return err
	}
	if kept {
		fmt.Fprintf(c.App.ErrWriter, "jorc: warning: the agent on %s has a member block, which decides its roles, zone and params: while that agent runs it undoes this change\n", node)
	}
	if exists, err := cl.Exists(c.Context); err == nil && !exists {
		fmt.Fprintf(c.App.ErrWriter, "jorc: cluster %q has no profile yet: 'jorc cluster init %s' creates it\n", cl.Name(), cl.Name())
	}
	return nil
}

// memberBlock reports whether node is this host and its configuration has a member block.
func (e *environment) memberBlock(c *cli.Context, node string) (bool, error) {
	settings, err := e.config(c)
	if err != nil || settings.Member == nil {
		return false, err
	}
	return !c.IsSet("node") || node == settings.Node, nil
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
		Action: env.leaveCluster,
		Description: "The member no longer leads or manages. A running jorc agent with a member block joins again. " +
			"It is not an error if the node is not a member.",
	}
}

func (e *environment) leaveCluster(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	node, err := e.ownNode(c)
	if err != nil {
		return err
	}
	left, err := cl.Leave(c.Context, node, cl.MayBelieve(c.Context, node))
	if err == nil && !left {
		fmt.Fprintf(c.App.ErrWriter, "jorc: node %q is no member of cluster %q%s\n", node, cl.Name(), after("; ", unknownHost(c, cl, node)))
	}
	return err
}

// unknownHost says that a host does not exist; empty: it does, or that is not known.
// Commands whose goal is that it is gone say so and succeed.
func unknownHost(c *cli.Context, cl *cluster.Cluster, node string) string {
	if err := cl.CheckHost(c.Context, node); errors.Is(err, cluster.ErrNoHost) {
		return err.Error()
	}
	return ""
}

func membersCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "members",
		Usage: "list members",
		Description: "EXPR is an expression such as 'Zone == \"a\" and \"db\" in Roles and Params[\"disks\"] != 4' over " +
			strings.Join(cluster.FieldNames(), ", ") + "; a missing value is false or empty. " +
			"FIELDS are these or single entries of them, such as Params.disks.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "filter", Usage: "only members that `EXPR` matches"},
			&cli.BoolFlag{Name: "cluster-filter", Usage: "only members that the param cluster/filter matches", DisableDefaultText: true},
			&cli.StringFlag{Name: "role", Usage: "only members with `ROLE`"},
			&cli.BoolFlag{Name: "count", Usage: "print only their number", DisableDefaultText: true},
			&cli.StringFlag{Name: "fields", Usage: "print these `FIELDS`, separated by commas"},
			&cli.StringFlag{Name: "sort", Usage: "sort by `FIELD`; prefix with - to sort descending"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N` members", DefaultText: "all"},
		},
		Action: env.listMembers,
	}
}

// memberColumns are what a table shows when --fields does not say otherwise.
const memberColumns = "Node,Address,Zone,Roles,Version,Health,Agent"

func (e *environment) listMembers(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	filter, err := cluster.ParseFilter(c.String("filter"))
	if err != nil {
		return usagef(c, "--%v", err)
	}
	columns, order, err := memberFields(c)
	if err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	whole := format == formatJSON && !c.IsSet("fields")
	o := cluster.MembersOptions{Filter: filter, Need: order.Need(), Unreadable: unreadable(c)}
	if !c.Bool("count") {
		for _, column := range columns {
			o.Need |= column.Need()
		}
		if whole {
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
	case c.Bool("count"):
		_, err := fmt.Fprintln(c.App.Writer, len(all))
		return err
	case whole:
		return e.writeJSON(c.App.Writer, all)
	}
	return e.printMembers(c, columns, all)
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
	by := strings.TrimPrefix(c.String("sort"), "-")
	if by == "" {
		by = "Node"
	}
	if order, err = cluster.ParseColumn(by); err != nil {
		return nil, order, usagef(c, "--sort: %v", err)
	}
	if c.IsSet("limit") && c.Int("limit") < 0 {
		return nil, order, usagef(c, "--limit is %d, but must not be negative", c.Int("limit"))
	}
	return columns, order, nil
}

func (e *environment) printMembers(c *cli.Context, columns []cluster.Column, all []cluster.Member) error {
	l := listing{states: []string{"health", "agent"}}
	objects := make([]map[string]any, len(all))
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
