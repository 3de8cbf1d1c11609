package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/fleet"
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
					&cli.BoolFlag{Name: "raw", Usage: "print a string without quotes, and a newline only on a terminal", DisableDefaultText: true},
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
				Name:      "history",
				Usage:     "show who changed the profile, when, why, and from what to what",
				ArgsUsage: "[KEY]",
				Description: "With KEY only the changes of that param, of its schema, and of the entry of meta with that name. The last 200 are kept, in at most 128 KiB; " +
					"of secret params there are digests alone. Members' own params have no history.",
				Flags:  []cli.Flag{&cli.IntFlag{Name: "limit", Usage: "only the last `N`; 0: all stored ones", Value: 20}},
				Action: env.onCluster(env.profileHistory),
			},
			{
				Name:      "revert",
				Usage:     "undo one change",
				ArgsUsage: "ID",
				Description: "Sets what the change changed to what it was before; ID is a number that 'jorc cluster profile history' shows. Exits 4, and writes nothing, if " +
					"one of these values has changed since. The undoing is a change itself, and can be undone.",
				Action: env.onCluster(env.revertProfile),
			},
			{
				Name:  "token",
				Usage: "create an ACL token that may write this profile and expires",
				Description: "Prints its secret and nothing else. Only callers with acl:write can create one; " +
					"without that right, name a file with a token as token_file of the task.",
				Flags:  []cli.Flag{&cli.DurationFlag{Name: "ttl", Usage: "life of the token: 1m to 24h", Value: fleet.DefaultTokenTTL}},
				Action: env.onCluster(env.profileToken),
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

// minted is the answer of `profile token -o json`.
type minted struct {
	Secret   string `json:"secret_id"`
	Accessor string `json:"accessor_id"`
	Expires  string `json:"expires"`
}

func (e *environment) profileToken(c *cli.Context, cl *target) error {
	t, err := cl.ProfileToken(c.Context, c.Duration("ttl"))
	switch {
	case errors.Is(err, cluster.ErrInvalid):
		return usagef(c, "--ttl: %v", err)
	case err != nil:
		return err
	case e.format(c) == formatJSON:
		return e.writeJSON(c.App.Writer, minted{t.Secret, t.Accessor, when(t.Expires)})
	}
	_, err = fmt.Fprintln(c.App.Writer, t.Secret)
	return err
}

// forceFlag lets commands write params of a role in advance.
func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force", Usage: "also for a role that no member has yet", DisableDefaultText: true}
}

// profileScope is the cluster whose profile a command is about and the scope that
// --role names; the role exists, unless --force is given.
func (e *environment) profileScope(c *cli.Context) (*target, profile.Scope, error) {
	s, err := scope(c)
	if err != nil {
		return nil, s, err
	}
	cl, err := e.cluster(c, "")
	if err == nil && s.Role != "" && !c.Bool("force") {
		err = cl.CheckRole(c.Context, s.Role)
	}
	return cl, s, err
}

// scope is the scope that --role names.
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
func noMember(c *cli.Context, cl *target, err error) error {
	if errors.Is(err, cluster.ErrNoMember) {
		if err := cl.CheckHost(c.Context, c.String("node")); err != nil {
			return err
		}
	}
	return err
}

// profileChange makes a new document of the present one.
type profileChange = func(*profile.Editor, profile.Document) (profile.Document, error)

// changeProfile changes the profile.
func changeProfile(c *cli.Context, cl *target, change profileChange) error {
	d, err := cl.ChangeProfile(c.Context, change)
	return warnSize(c, d, err)
}

// warnSize is err; a profile that comes near its limit is named on stderr.
func warnSize(c *cli.Context, d profile.Document, err error) error {
	if warning := d.Size().Warning(); err == nil && warning != "" {
		note(c, "%s", warning)
	}
	return err
}

func (e *environment) showProfile(c *cli.Context) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	d, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	return printDocument(c, d)
}

func (e *environment) getParam(c *cli.Context) error {
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
	v, ok := p[argument(c, 0)]
	switch {
	case !ok && fallback != nil:
		v = *fallback
	case !ok:
		return fmt.Errorf("param %q of cluster %q: it does not exist; --default gives a value for that case", argument(c, 0), cl.Name())
	}
	return e.printValue(c, v, c.Bool("raw"))
}

// layer reads the params that a read is about.
func (e *environment) layer(c *cli.Context, cl *target) (profile.Params, error) {
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

func (e *environment) setParam(c *cli.Context, add bool) error {
	if _, err := scope(c); err != nil {
		return err
	}
	name, r := argument(c, 0), e.values(c)
	v, err := r.parse("VALUE", argument(c, 1))
	if err != nil {
		return err
	}
	ref := profile.Ref{Absent: true}
	if !add {
		if ref, err = r.ref(); err != nil {
			return err
		}
	}
	cl, s, err := e.profileScope(c)
	if err != nil {
		return err
	}
	if c.IsSet("node") {
		return noMember(c, cl, cl.SetMemberParam(c.Context, c.String("node"), name, v, ref))
	}
	d, err := cl.Set(c.Context, s, name, v, ref)
	return warnSize(c, d, err)
}

func (e *environment) removeParam(c *cli.Context) error {
	name := argument(c, 0)
	ref, err := e.values(c).ref()
	if err != nil {
		return err
	}
	cl, s, err := e.profileScope(c)
	if err != nil {
		return err
	}
	if c.IsSet("node") {
		return noMember(c, cl, cl.RemoveMemberParam(c.Context, c.String("node"), name, ref))
	}
	d, err := cl.Remove(c.Context, s, name, ref)
	return warnSize(c, d, err)
}

func (e *environment) allParams(c *cli.Context) error {
	cl, s, err := e.profileScope(c)
	if err != nil {
		return err
	}
	file := argument(c, 0)
	if file == "" {
		if c.IsSet("ref") {
			return usagef(c, "--ref needs a FILE to compare with")
		}
		d, err := cl.Profile(c.Context)
		if err != nil {
			return err
		}
		return printDocument(c, d.In(s).Value())
	}
	r := e.values(c)
	after, err := r.params(file)
	if err != nil {
		return err
	}
	if !c.IsSet("ref") {
		return changeProfile(c, cl, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
			return ed.SetParams(d, s, after)
		})
	}
	before, err := r.params(c.String("ref"))
	if err != nil {
		return err
	}
	return changeProfile(c, cl, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.ReplaceParams(d, s, before, after)
	})
}

func (e *environment) patchProfile(c *cli.Context) error {
	file, r := cmp.Or(argument(c, 0), "-"), e.values(c)
	data, err := r.file(file)
	if err != nil {
		return err
	}
	patch, err := profile.ParsePatch(data)
	if err != nil {
		return r.wrong(file, err)
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	return changeProfile(c, cl, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.Patch(d, patch)
	})
}
