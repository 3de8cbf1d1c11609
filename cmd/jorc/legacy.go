package main

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/doctor"
	"github.com/jorc/jorc/internal/legacy"
)

// legacyProgram is jorc as package legacy calls it.
type legacyProgram struct{ *environment }

// Do carries out a command as part of that of c, which errors name.
func (p legacyProgram) Do(c *cli.Context, command legacy.Command) error {
	words := strings.Fields(command.Name)
	to := noun(p.environment, words[0])
	for _, word := range words[1:] {
		to = find(to.Subcommands, word)
	}
	set := flag.NewFlagSet(command.Name, flag.ContinueOnError)
	for _, f := range to.Flags {
		if err := f.Apply(set); err != nil {
			return err
		}
	}
	values := map[string]string{}
	maps.Copy(values, command.Flags)
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; c.IsSet(name) && set.Lookup(name) != nil {
			values[name] = fmt.Sprint(c.Value(name))
		}
	}
	for name, value := range values {
		if set.Lookup(name) == nil { // a global one
			set.String(name, "", "")
		}
		if err := set.Set(name, value); err != nil {
			return err
		}
	}
	args := command.Args
	if args == nil {
		args = c.Args().Slice()
	}
	if err := set.Parse(append([]string{"--"}, args...)); err != nil {
		return err
	}
	app := *c.App
	if command.Stdout != nil {
		app.Writer = command.Stdout
	}
	if command.Stderr != nil {
		app.ErrWriter = command.Stderr
	}
	if command.VersionFile != "" {
		p.ownVersion = filepath.Join(p.etc, command.VersionFile)
	}
	inner := cli.NewContext(&app, set, c)
	inner.Command = c.Command
	return to.Action(inner)
}

// Open is cluster.
func (p legacyProgram) Open(c *cli.Context, name string) (legacy.Target, error) {
	t, err := p.cluster(c, name)
	if err != nil {
		return legacy.Target{}, err
	}
	return legacy.Target{Cluster: t.Cluster, Client: t.client, Settings: t.settings}, nil
}

// Node is hostNamed.
func (p legacyProgram) Node(c *cli.Context, t legacy.Target, name string) (string, error) {
	return p.hostNamed(c, &target{t.Cluster, t.Client, t.Settings}, name)
}

// Health is healthWith.
func (p legacyProgram) Health(c *cli.Context, more func() ([]doctor.CheckState, error)) error {
	return p.healthWith(c, more)
}
