package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/profile"
)

func exportClusterCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print the whole cluster as JSON: profile, members, leaders, holds", ArgsUsage: "[NAME]",
		Action: env.exportCluster,
	}
}

func importClusterCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "create a cluster from an export", ArgsUsage: "FILE",
		Description: "FILE may be - for stdin. The cluster gets the name in FILE, or that of --cluster. Exits 4 if a different cluster of that name exists.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "replace", Usage: "overwrite an existing cluster", DisableDefaultText: true}},
		Action:      env.importCluster,
	}
}

func (e *environment) exportCluster(c *cli.Context) error {
	name, err := optional(c)
	if err != nil {
		return err
	}
	cl, err := e.cluster(c, name)
	if err != nil {
		return err
	}
	a, err := cl.Export(c.Context)
	if err != nil {
		return err
	}
	v, err := profile.Of(a) // as all JSON of profiles is written: numbers as they are, members sorted
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s\n", v.Indented())
	return err
}

func (e *environment) importCluster(c *cli.Context) error {
	file, _, err := key(c, 1, "missing argument FILE")
	if err != nil {
		return err
	}
	r := e.values(c)
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
