package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/profile"
)

func editCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "edit",
		Usage: "change the document in an editor",
		Description: "Runs $EDITOR, $VISUAL or " + standardEditor + ". What others changed meanwhile stays; where both changed the same in different ways nothing is written, " +
			"the difference is shown, and your version is kept in a file; exit 4.",
		Action: env.editProfile,
	}
}

func (e *environment) editProfile(c *cli.Context) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	base, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "jorc-"+cl.Name()+"-*.json")
	if err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}
	before := append(base.Indented(), '\n')
	_, err = file.Write(before)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("create a file to edit: %w", err)
	}
	if err := e.runEditor(c, file.Name()); err != nil {
		_ = os.Remove(file.Name()) // nothing of value is in it
		return err
	}
	after, err := os.ReadFile(file.Name())
	if err != nil {
		return fmt.Errorf("read the edited file: %w", err)
	}
	if bytes.Equal(before, after) {
		note(c, "nothing changed")
		return os.Remove(file.Name())
	}
	err = changeProfile(c, cl, func(ed *profile.Editor, theirs profile.Document) (profile.Document, error) {
		mine, err := ed.Import(base, after)
		if err != nil {
			return profile.Document{}, err
		}
		return ed.Merge(base, mine, theirs)
	})
	var conflicts *profile.ConflictsError
	if errors.As(err, &conflicts) {
		fmt.Fprint(c.App.ErrWriter, conflicts.Report())
	}
	if err != nil {
		return fmt.Errorf("%w; your version is kept in %s", err, file.Name())
	}
	return os.Remove(file.Name())
}

// runEditor lets a person edit file. The editor stays in jorc's process group:
// only that may read from the terminal.
func (e *environment) runEditor(c *cli.Context, file string) error {
	editor := standardEditor
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if v := e.getenv(name); v != "" {
			editor = v
		}
	}
	args := editorArgs(editor, file)
	cmd := exec.CommandContext(c.Context, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.stdin, underlying(c.App.Writer), underlying(c.App.ErrWriter)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q: %w: nothing was written", editor, err)
	}
	return nil
}

func schemaCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "schema",
		Usage: "JSON Schemas of params",
		Subcommands: []*cli.Command{
			{
				Name:        "set",
				Usage:       "set the schema of a param",
				ArgsUsage:   "KEY [FILE]",
				Description: "FILE is JSON or YAML; without it the schema comes from stdin. It is refused when the cluster, a role or a member has a param that breaks it; with --force it is set, and they are named.",
				Flags:       []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "set it whatever values there are", DisableDefaultText: true}},
				Action:      env.setSchema,
			},
			{Name: "get", Usage: "print the schema of a param", ArgsUsage: "KEY", Action: env.getSchema},
			{Name: "remove", Usage: "remove the schema of a param", ArgsUsage: "KEY", Action: env.removeSchema},
		},
	}
}

func (e *environment) setSchema(c *cli.Context) error {
	file, r := cmp.Or(argument(c, 1), "-"), e.values(c)
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
	force := c.Bool("force")
	d, refused, err := cl.SetSchema(c.Context, argument(c, 0), schema, force)
	switch {
	case err == nil && len(refused) > 0:
		note(c, "the schema was set; values that break it stay until they are changed: %s", printable(refused.String()))
	case errors.As(err, new(profile.SchemaErrors)):
		err = fmt.Errorf("%w: correct the values, or --force sets the schema all the same", err)
	}
	return warnSize(c, d, err)
}

func (e *environment) getSchema(c *cli.Context) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	d, err := cl.Profile(c.Context)
	if err != nil {
		return err
	}
	v, ok := d.Schemas[argument(c, 0)]
	if !ok {
		return fmt.Errorf("schema of param %q in cluster %q does not exist", argument(c, 0), cl.Name())
	}
	return printDocument(c, v)
}

func (e *environment) removeSchema(c *cli.Context) error {
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	return changeProfile(c, cl, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.RemoveSchema(d, argument(c, 0))
	})
}

// watchProfile prints what is watched whenever it is another.
func (e *environment) watchProfile(c *cli.Context) error {
	name := argument(c, 0)
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
			if errors.Is(u.Err, consul.ErrDenied) || consul.IsPermanent(u.Err) {
				cancel(u.Err)
			} else if text := u.Err.Error(); text != trouble { // reported once
				note(c, "%s", text)
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
