package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

func schemaCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "schema",
		Usage: "JSON Schemas of params",
		Subcommands: []*cli.Command{
			{
				Name:        "set",
				Usage:       "set the schema of a param",
				ArgsUsage:   "KEY [FILE]",
				Description: "FILE is JSON or YAML; without it the schema comes from stdin. Existing params must be valid under it.",
				Action:      env.setSchema,
			},
			{Name: "get", Usage: "print the schema of a param", ArgsUsage: "KEY", Action: env.getSchema},
			{Name: "remove", Usage: "remove the schema of a param", ArgsUsage: "KEY", Action: env.removeSchema},
		},
	}
}

func (e *environment) setSchema(c *cli.Context) error {
	args := arguments(c)
	if len(args) < 1 || len(args) > 2 {
		return usagef(c, "missing argument KEY")
	}
	file := "-"
	if len(args) == 2 {
		file = args[1]
	}
	r := e.values(c)
	data, err := r.file(file)
	if err != nil {
		return err
	}
	schema, err := profile.ParseYAML(string(data))
	if err != nil {
		return r.wrong(file, err)
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	return e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.SetSchema(d, args[0], schema)
	}))
}

func (e *environment) getSchema(c *cli.Context) error {
	name, _, err := key(c, 1, "missing argument KEY")
	if err != nil {
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
	v, ok := d.Schemas[name]
	if !ok {
		return fmt.Errorf("schema of param %q in cluster %q does not exist", name, cl.Name())
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s\n", v.Indented())
	return err
}

func (e *environment) removeSchema(c *cli.Context) error {
	name, _, err := key(c, 1, "missing argument KEY")
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	return e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.RemoveSchema(d, name)
	}))
}

// watchProfile prints what is watched whenever it is another.
func (e *environment) watchProfile(c *cli.Context) error {
	name, err := optional(c)
	if err != nil {
		return err
	}
	s, err := scope(c)
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	var last *profile.Value
	trouble := ""
	ctx, cancel := context.WithCancelCause(c.Context)
	defer cancel(nil)
	err = cl.WatchProfile(ctx, func(u kv.Update[profile.Document]) {
		if u.Err != nil {
			if errors.Is(u.Err, consul.ErrDenied) {
				cancel(u.Err)
			} else if text := u.Err.Error(); text != trouble { // reported once
				fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", text)
				trouble = text
			}
			return
		}
		trouble = ""
		v := profile.Null()
		switch {
		case !u.Entry.Exists:
		case name != "":
			v = u.Entry.Value.In(s)[name]
		case s.Role != "":
			v = u.Entry.Value.In(s).Value()
		default:
			v = u.Entry.Value.Value()
		}
		if last == nil || !last.Equal(v) {
			if _, err := fmt.Fprintln(c.App.Writer, v); err != nil {
				cancel(err)
			}
		}
		last = &v
	})
	switch {
	case c.Context.Err() != nil:
		return endedBy(c.Context, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}
