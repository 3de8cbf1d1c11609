package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/profile"
)

func metaCommand(env *environment) *cli.Command {
	const whose = "Of the cluster, or with --node of a member. The keys icon and colour set how it is displayed; other keys are free."
	return &cli.Command{
		Name:  "meta",
		Usage: "icon, colour and notes of a cluster or member",
		Subcommands: []*cli.Command{
			{
				Name: "get", Usage: "print one entry, or all", ArgsUsage: "[KEY]", Description: whose,
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "raw", Usage: "print a string without quotes, and a newline only on a terminal", DisableDefaultText: true}},
				Action: env.onCluster(env.getMeta),
			},
			{
				Name: "set", Usage: "set an entry", ArgsUsage: "KEY VALUE", Description: whose + " " + valueHelp,
				Flags: valueFlags(), Action: env.setMeta,
			},
			{Name: "remove", Usage: "remove an entry", ArgsUsage: "KEY", Description: whose, Action: env.onCluster(env.removeMeta)},
		},
	}
}

func (e *environment) getMeta(c *cli.Context, cl *target) error {
	var meta profile.Params
	if c.IsSet("node") {
		r, err := cl.Record(c.Context, c.String("node"))
		if err != nil {
			return noMember(c, cl, err)
		}
		meta = r.Meta
	} else {
		d, err := cl.Profile(c.Context)
		if err != nil {
			return err
		}
		meta = d.Meta
	}
	name := argument(c, 0)
	if name == "" {
		return printDocument(c, meta.Value())
	}
	v, ok := meta[name]
	if !ok {
		return fmt.Errorf("meta %q in cluster %q does not exist", name, cl.Name())
	}
	return e.printValue(c, v, c.Bool("raw"))
}

func (e *environment) setMeta(c *cli.Context) error {
	v, err := e.values(c).parse("VALUE", argument(c, 1))
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	return changeMeta(c, cl, &v)
}

func (e *environment) removeMeta(c *cli.Context, cl *target) error {
	return changeMeta(c, cl, nil)
}

// changeMeta sets an entry, or removes it when v is nil.
func changeMeta(c *cli.Context, cl *target, v *profile.Value) error {
	name := argument(c, 0)
	if c.IsSet("node") {
		return noMember(c, cl, cl.SetMemberMeta(c.Context, c.String("node"), name, v))
	}
	return changeProfile(c, cl, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		if v == nil {
			return ed.RemoveMeta(d, name)
		}
		return ed.SetMeta(d, name, *v)
	})
}
