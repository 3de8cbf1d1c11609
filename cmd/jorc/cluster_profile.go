package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/text"
)

func profileCommand(env *environment) *cli.Command {
	role := &cli.StringFlag{Name: "role", Usage: "params of `ROLE` instead of the cluster's"}
	ref := &cli.StringFlag{Name: "ref", Usage: "only if the param is `V` now; else exit 4"}
	return &cli.Command{
		Name:  "profile",
		Usage: "the document that all members share: params, meta, schemas",
		Subcommands: []*cli.Command{
			{Name: "show", Usage: "print the whole document", Action: env.showProfile},
			editCommand(env),
			{
				Name:      "get",
				Usage:     "print a param",
				ArgsUsage: "KEY",
				Description: valueHelp + " Exits 1 if the param does not exist and --default is not given. With --node or --role only the member's or role's own params are read. " +
					"With --effective it is what a member (--node, default this one) has when schema defaults, cluster, roles and its own params are laid over one another.",
				Flags: append([]cli.Flag{
					&cli.BoolFlag{Name: "raw", Usage: "print a string without quotes", DisableDefaultText: true},
					&cli.StringFlag{Name: "default", Usage: "print `D` if the param does not exist"},
					&cli.BoolFlag{Name: "effective", Usage: "with all layers", DisableDefaultText: true},
					&cli.BoolFlag{Name: "compose", Usage: "with all layers, objects merged", DisableDefaultText: true},
					role,
				}, valueFlags()...),
				Action: env.getParam,
			},
			{
				Name:      "set",
				Usage:     "set a param",
				ArgsUsage: "KEY VALUE",
				Description: valueHelp + " Other params may change at the same time. A reference that does not match exits 4 and writes nothing. " +
					"With --node it is that member's own param.",
				Flags: append([]cli.Flag{
					ref,
					&cli.StringFlag{Name: "default", Usage: "with --ref: a param that is missing counts as `D`"},
					&cli.BoolFlag{Name: "absent", Usage: "only if the param does not exist", DisableDefaultText: true},
					role,
					forceFlag(),
				}, valueFlags()...),
				Action: func(c *cli.Context) error { return env.setParam(c, false) },
			},
			{
				Name:        "add",
				Usage:       "set a param that does not exist yet",
				ArgsUsage:   "KEY VALUE",
				Description: valueHelp + " Exits 4 if the param exists.",
				Flags:       append([]cli.Flag{role, forceFlag()}, valueFlags()...),
				Action:      func(c *cli.Context) error { return env.setParam(c, true) },
			},
			{
				Name:        "remove",
				Usage:       "remove a param",
				ArgsUsage:   "KEY",
				Description: valueHelp + " It is not an error if the param does not exist.",
				Flags:       append([]cli.Flag{ref, role}, valueFlags()...),
				Action:      env.removeParam,
			},
			{
				Name:      "params",
				Usage:     "print or replace all params",
				ArgsUsage: "[FILE]",
				Description: "FILE is an object in JSON or YAML, or - for stdin. With --ref OLDFILE only the differences between the two files are applied, " +
					"if all affected params are as in OLDFILE; else exit 4.",
				Flags:  []cli.Flag{&cli.StringFlag{Name: "ref", Usage: "only what differs from `OLDFILE`"}, role, forceFlag()},
				Action: env.allParams,
			},
			{
				Name:        "patch",
				Usage:       "apply a JSON Patch (RFC 6902) to the whole document, all or nothing",
				ArgsUsage:   "[FILE|-]",
				Description: "Without FILE it comes from stdin. A test that fails exits 4.",
				Action:      env.patchProfile,
			},
			schemaCommand(env),
			{
				Name:  "token",
				Usage: "create an ACL token that may write this profile and expires",
				Description: "Prints its secret and nothing else. Only callers with acl:write can create one; " +
					"without that right, name a file with a token as token_file of the task.",
				Flags:  []cli.Flag{&cli.DurationFlag{Name: "ttl", Usage: "life of the token: 1m to 24h", Value: cluster.DefaultTokenTTL}},
				Action: env.profileToken,
			},
			{
				Name:        "watch",
				Usage:       "print the document, or a param, now and whenever it changes",
				ArgsUsage:   "[KEY]",
				Description: "One line of JSON each; null while the param does not exist. A signal ends it: exit 130 or 143.",
				Flags:       []cli.Flag{role},
				Action:      env.watchProfile,
			},
		},
	}
}

// scope is what --role says.
func scope(c *cli.Context) (profile.Scope, error) {
	if c.IsSet("role") {
		if c.IsSet("node") {
			return profile.Scope{}, usagef(c, "--role and --node exclude each other")
		}
		if err := text.CheckName(c.String("role")); err != nil {
			return profile.Scope{}, usagef(c, "--role: %v", err)
		}
	}
	return profile.Scope{Role: c.String("role")}, nil
}

// noMember is err, or that the node of --node does not exist at all.
func noMember(c *cli.Context, cl *cluster.Cluster, err error) error {
	if errors.Is(err, cluster.ErrNoMember) {
		if err := cl.CheckHost(c.Context, c.String("node")); err != nil {
			return err
		}
	}
	return err
}

// forceFlag lets commands write params of a role in advance.
func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force", Usage: "also for a role that no member has yet", DisableDefaultText: true}
}

// checkRole fails for a role that does not exist, unless --force is given.
func checkRole(c *cli.Context, cl *cluster.Cluster, s profile.Scope) error {
	if s.Role == "" || c.Bool("force") {
		return nil
	}
	return cl.CheckRole(c.Context, s.Role)
}

// key is the first of n arguments.
func key(c *cli.Context, n int, want string) (string, []string, error) {
	args := arguments(c)
	if len(args) != n {
		return "", nil, usagef(c, "%s", want)
	}
	return args[0], args[1:], nil
}

func (e *environment) showProfile(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	d, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s\n", d.Indented())
	return err
}

func (e *environment) getParam(c *cli.Context) error {
	name, _, err := key(c, 1, "missing argument KEY")
	if err != nil {
		return err
	}
	fallback, err := e.values(c).flag("default")
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	p, err := e.layer(c, cl)
	if err != nil {
		return err
	}
	v, ok := p[name]
	switch {
	case !ok && fallback != nil:
		v = *fallback
	case !ok:
		return fmt.Errorf("param %q of cluster %q: it does not exist; --default gives a value for that case", name, cl.Name())
	}
	return e.printValue(c, v, c.Bool("raw"))
}

// layer reads the params that a read is about.
func (e *environment) layer(c *cli.Context, cl *cluster.Cluster) (profile.Params, error) {
	s, err := scope(c)
	if err != nil {
		return nil, err
	}
	compose := c.Bool("compose")
	switch effective := c.Bool("effective") || compose; {
	case effective && s.Role == "":
		node, err := e.ownNode(c)
		if err != nil {
			return nil, err
		}
		v, err := cl.View(c.Context, node)
		if err == nil && !v.Member && c.IsSet("node") {
			err = cl.CheckHost(c.Context, node)
		}
		return v.Effective(compose).Params(), err
	case !effective && c.IsSet("node"): // not JORC_NODE: that names this host
		r, err := cl.Record(c.Context, c.String("node"))
		return r.Params, noMember(c, cl, err)
	default:
		d, err := cl.Profile(c.Context)
		if _, known := d.Roles[s.Role]; err == nil && s.Role != "" && !known {
			err = cl.CheckRole(c.Context, s.Role)
		}
		switch {
		case err != nil || !effective:
			return d.In(s), err
		case compose:
			return d.Compose([]string{s.Role}, nil).Params(), nil
		}
		return d.Effective([]string{s.Role}, nil).Params(), nil
	}
}
