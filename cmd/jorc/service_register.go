package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
)

func registerCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:      "register",
		Usage:     "register services from a Consul service definition file",
		ArgsUsage: "FILE",
		Description: "FILE is Consul's service JSON, or HCL when its name ends in .hcl. The definitions are kept in <state-dir>/services: " +
			"the jorc agent of that directory keeps them registered and runs their script checks. " +
			"Prints the ids. Exits 4 if another owner, or the agent's configuration, holds an id.",
		Action: env.registerServices,
	}
}

func deregisterCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:      "deregister",
		Usage:     "deregister a service of this host",
		ArgsUsage: "ID",
		Description: "Removes it from the local Consul agent, and from <state-dir>/services. " +
			"Exits 4 when it belongs to the configuration of the running jorc agent, which would register it again.",
		Action: env.deregisterService,
	}
}

func exportCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "export",
		Usage: "export the addresses of all services",
		Description: "Formats: hiera (services::<service>::<interface>: addresses; the interface is " +
			"the name of a tagged address, lan when there is none), json, prometheus (file_sd), hosts. The same catalog gives the same bytes, " +
			"and a file that holds them already is not touched. When the token does not see all of the catalog nothing is written, exit 5.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + joinOr(catalog.ExportFormats())},
			levelFlag(),
			&cli.StringFlag{Name: "file", Usage: "replace `FILE` instead of writing to stdout"},
		},
		Action: env.exportServices,
	}
}

// registered is one service in the answer of `service register -o json`.
type registered struct {
	ID      string `json:"id"`
	Service string `json:"service"`
	Daemon  bool   `json:"daemon"`
	Scripts int    `json:"scripts"`
}

func (e *environment) registerServices(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument FILE")
	}
	services, err := config.ParseServiceFile(args[0])
	if err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	l, all := listing{columns: []string{"id"}}, []registered{}
	waiting := 0
	for _, s := range services {
		p, err := catalog.Publish(c.Context, client, settings.StateDir, s)
		if err != nil {
			return conflict(err)
		}
		if !p.Daemon {
			waiting += p.Scripts
		}
		all = append(all, registered{p.ID, s.Name, p.Daemon, p.Scripts})
		l.rows = append(l.rows, []string{p.ID})
	}
	if waiting > 0 {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %s to run, and no jorc agent with state directory %s to do so: critical until one is started\n",
			counted(count{waiting, "script check"}), settings.StateDir)
	}
	if _, given := e.value(c, "output"); !given {
		return l.writePlain(c.App.Writer)
	}
	return e.print(c, l, all)
}

func (e *environment) deregisterService(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument ID")
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	err = catalog.Withdraw(c.Context, client, settings.StateDir, args[0])
	if errors.Is(err, consul.ErrNotFound) { // repeating it is not a failure
		fmt.Fprintf(c.App.ErrWriter, "jorc: %v\n", err)
		return nil
	}
	return conflict(err)
}

func (e *environment) exportServices(c *cli.Context) error {
	if len(arguments(c)) > 0 {
		return usagef(c, "no arguments expected")
	}
	format := c.String("format")
	if format == "" {
		return usagef(c, "missing --format: one of %s", joinOr(catalog.ExportFormats()))
	}
	if err := oneOf(c, "format", format, catalog.ExportFormats()...); err != nil {
		return err
	}
	level, err := levelOf(c)
	if err != nil {
		return err
	}
	client, _, err := e.consul(c)
	if err != nil {
		return err
	}
	snapshot, err := catalog.Fetch(c.Context, client, level, consul.Query{})
	if err != nil {
		return err
	}
	data, err := catalog.Export(snapshot, format)
	if err != nil {
		return err
	}
	if file := c.String("file"); file != "" {
		_, lost, err := catalog.WriteExport(file, data)
		for _, what := range lost {
			fmt.Fprintf(c.App.ErrWriter, "jorc: warning: %s: an attribute of the replaced file is lost: %s\n", file, what)
		}
		return err
	}
	_, err = rawData(c.App.Writer).Write(data)
	return err
}

// conflict gives the errors of services that belong to others their exit code.
func conflict(err error) error {
	if errors.Is(err, catalog.ErrForeign) || errors.Is(err, catalog.ErrConfigured) {
		return &exitError{code: exitConflict, err: err}
	}
	return err
}
