package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/profile"
)

func (e *environment) setParam(c *cli.Context, add bool) error {
	name, rest, err := key(c, 2, "missing arguments KEY and VALUE")
	if err != nil {
		return err
	}
	s, err := scope(c)
	if err != nil {
		return err
	}
	r := e.values(c)
	v, err := r.parse("VALUE", rest[0])
	if err != nil {
		return err
	}
	ref := profile.Ref{Absent: true}
	if !add {
		if ref, err = r.ref(); err != nil {
			return err
		}
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	if c.IsSet("node") {
		return noMember(c, cl, cl.SetMemberParam(c.Context, c.String("node"), name, v, ref))
	}
	if err := checkRole(c, cl, s); err != nil {
		return err
	}
	return e.changed(c)(cl.Set(c.Context, s, name, v, ref))
}

func (e *environment) removeParam(c *cli.Context) error {
	name, _, err := key(c, 1, "missing argument KEY")
	if err != nil {
		return err
	}
	s, err := scope(c)
	if err != nil {
		return err
	}
	ref, err := e.values(c).ref()
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err != nil {
		return err
	}
	if c.IsSet("node") {
		return noMember(c, cl, cl.RemoveMemberParam(c.Context, c.String("node"), name, ref))
	}
	if err := checkRole(c, cl, s); err != nil {
		return err
	}
	return e.changed(c)(cl.Remove(c.Context, s, name, ref))
}

// changed ends a change of the profile: one that comes near the limit says so.
func (e *environment) changed(c *cli.Context) func(profile.Document, error) error {
	return func(d profile.Document, err error) error {
		if err == nil && d.Size().Near() {
			fmt.Fprintf(c.App.ErrWriter, "jorc: the profile takes %s: store large values in keys of their own\n", d.Size())
		}
		return err
	}
}

func (e *environment) allParams(c *cli.Context) error {
	file, err := optional(c)
	if err != nil {
		return err
	}
	s, err := scope(c)
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, "")
	if err == nil {
		err = checkRole(c, cl, s)
	}
	if err != nil {
		return err
	}
	if file == "" {
		if c.IsSet("ref") {
			return usagef(c, "--ref needs a FILE to compare with")
		}
		d, err := cl.Profile(c.Context)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s\n", d.In(s).Value().Indented())
		return err
	}
	r := e.values(c)
	after, err := r.params(file)
	if err != nil {
		return err
	}
	if !c.IsSet("ref") {
		return e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
			return ed.SetParams(d, s, after)
		}))
	}
	before, err := r.params(c.String("ref"))
	if err != nil {
		return err
	}
	return e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.ReplaceParams(d, s, before, after)
	}))
}

func (e *environment) patchProfile(c *cli.Context) error {
	file, err := optional(c)
	if err != nil {
		return err
	}
	if file == "" {
		file = "-"
	}
	r := e.values(c)
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
	return e.changed(c)(cl.ChangeProfile(c.Context, func(ed *profile.Editor, d profile.Document) (profile.Document, error) {
		return ed.Patch(d, patch)
	}))
}
