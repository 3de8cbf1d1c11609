package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/text"
)

func serviceCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "service",
		Usage: "services in Consul's catalog: list, resolve, register, export",
		Subcommands: []*cli.Command{
			{
				Name:  "list",
				Usage: "list services and their health",
				Description: "All services of the catalog with the number of their instances by health; with --node NODE the instances on that node. " +
					"(JORC_NODE does not count here.)",
				Action: env.listServices,
			},
			{
				Name:      "resolve",
				Usage:     "show the addresses of a service's instances",
				ArgsUsage: "NAME",
				Description: "One line per instance: address, port, node and the node's own DNS name, separated by tabs. " +
					"Exits 1 if there are no such instances.",
				Flags: []cli.Flag{
					levelFlag(),
					&cli.StringFlag{Name: "tag", Usage: "only instances with `TAG`"},
					&cli.BoolFlag{Name: "port-only", Usage: "print only ports", DisableDefaultText: true},
				},
				Action: env.resolveService,
			},
			registerCommand(env),
			deregisterCommand(env),
			exportCommand(env),
		},
	}
}

// levelFlag is the flag --for of commands that show instances.
func levelFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "for", Value: "functional", DefaultText: "functional",
		Usage: "only instances that have reached `LEVEL`, as in 'jorc wait': functional (passing or warning) or addressable (registered, with any health)",
	}
}

// levelOf reads levelFlag.
func levelOf(c *cli.Context) (catalog.Level, error) {
	level := c.String("for")
	if err := oneOf(c, "for", level, "functional", "addressable"); err != nil {
		return 0, err
	}
	return catalog.ParseLevel(level)
}

func (e *environment) listServices(c *cli.Context) error {
	client, _, err := e.consul(c)
	if err != nil {
		return err
	}
	if c.IsSet("node") { // not JORC_NODE: that names this host
		return e.listNode(c, client, c.String("node"))
	}
	all, leftOut, err := catalog.List(c.Context, client, consul.Query{})
	if err != nil {
		return err
	}
	noteUnreadable(c, leftOut)
	return e.print(c, listingOf("service,instances,passing,warning,critical,maintenance,tags", all, func(s catalog.ServiceSummary) []string {
		return []string{
			s.Service, strconv.Itoa(s.Instances), strconv.Itoa(s.Passing), strconv.Itoa(s.Warning),
			strconv.Itoa(s.Critical), strconv.Itoa(s.Maintenance), strings.Join(s.Tags, ","),
		}
	}), all)
}

// noteUnreadable names the services that Consul registers, but whose names its API
// cannot read.
func noteUnreadable(c *cli.Context, names []string) {
	if len(names) > 0 {
		note(c, "left out %s with a name that Consul's HTTP API cannot read: %s; deregister it at its node", counted(count{len(names), "service"}), quotedFew(names))
	}
}

// quotedFew names the first of names, each cut to a bearable length.
func quotedFew(names []string) string {
	const most, longest = 5, 60
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		if r := []rune(name); len(r) > longest {
			name = string(r[:longest]) + "…"
		}
		parts = append(parts, strconv.Quote(name))
	}
	return text.FewOf(", ", parts, len(names))
}

func (e *environment) listNode(c *cli.Context, client *consul.Client, node string) error {
	all, err := catalog.ListNode(c.Context, client, node, consul.Query{})
	if errors.Is(err, consul.ErrNotFound) {
		if hosts, _, listErr := client.CatalogHosts(c.Context, consul.Query{}); listErr == nil {
			err = unknown(err, node, "nodes", hosts, func(h consul.NodeInfo) string { return h.Node })
		}
	}
	if err != nil {
		return err
	}
	return e.print(c, listingOf("service,id,address,port,status*,tags", all, func(i catalog.ServiceInstance) []string {
		return []string{i.Service, i.ID, i.Address, strconv.Itoa(i.Port), i.Status, strings.Join(i.Tags, ",")}
	}), all)
}

// resolved is one answer of `service resolve -o json`.
type resolved struct {
	catalog.ServiceInstance
	DNSName string `json:"dns_name"`
}

// unknownService is err, with the existing services if none has the name.
func unknownService(c *cli.Context, client *consul.Client, name string, err error) error {
	all, _, listErr := catalog.List(c.Context, client, consul.Query{})
	nameOf := func(s catalog.ServiceSummary) string { return s.Service }
	if listErr != nil || slices.ContainsFunc(all, func(s catalog.ServiceSummary) bool { return nameOf(s) == name }) {
		return err
	}
	return unknown(err, name, "services", all, nameOf)
}

func (e *environment) resolveService(c *cli.Context) error {
	level, err := levelOf(c)
	if err != nil {
		return err
	}
	client, _, err := e.consul(c)
	if err != nil {
		return err
	}
	name := argument(c, 0)
	found, err := catalog.Resolve(c.Context, client, name, c.String("tag"), level, consul.Query{})
	if errors.Is(err, consul.ErrNotFound) {
		err = unknownService(c, client, name, err)
	}
	if err != nil {
		return err
	}
	all, ports := []resolved{}, []int{}
	for _, i := range found {
		all, ports = append(all, resolved{i, i.NodeName()}), append(ports, i.Port)
	}
	if c.Bool("port-only") {
		return e.printLines(c, listingOf("port", ports, func(p int) []string { return []string{strconv.Itoa(p)} }), ports)
	}
	return e.printLines(c, listingOf("address,port,node,name", all, func(i resolved) []string {
		return []string{i.Address, strconv.Itoa(i.Port), i.Node, i.DNSName}
	}), all)
}

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
	services, err := config.ParseServiceFile(argument(c, 0))
	if err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	all, waiting := []registered{}, 0
	for _, s := range services {
		p, err := catalog.Publish(c.Context, client, settings.StateDir, s)
		if err != nil {
			return err
		}
		if !p.Daemon {
			waiting += p.Scripts
		}
		all = append(all, registered{p.ID, s.Name, p.Daemon, p.Scripts})
	}
	if waiting > 0 {
		note(c, "%s to run, and no jorc agent with state directory %s to do so: critical until one is started",
			counted(count{waiting, "script check"}), settings.StateDir)
	}
	return e.printLines(c, listingOf("id", all, func(r registered) []string { return []string{r.ID} }), all)
}

func (e *environment) deregisterService(c *cli.Context) error {
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	err = catalog.Withdraw(c.Context, client, settings.StateDir, argument(c, 0))
	if errors.Is(err, consul.ErrNotFound) { // repeating it is not a failure
		note(c, "%v", err)
		return nil
	}
	return err
}

func (e *environment) exportServices(c *cli.Context) error {
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
	noteUnreadable(c, snapshot.LeftOut)
	data, leftOut, err := catalog.Export(snapshot, format)
	if err != nil {
		return err
	}
	if leftOut.Count > 0 {
		note(c, "warning: %s; correct its registration", leftOut)
	}
	if file := c.String("file"); file != "" {
		_, lost, err := catalog.WriteExport(file, data)
		for _, what := range lost {
			note(c, "warning: %s: an attribute of the replaced file is lost: %s", file, what)
		}
		return err
	}
	_, err = rawData(c.App.Writer).Write(data)
	return err
}

// unknown is err with the names that exist, the closest to name first.
func unknown[T any](err error, name, nouns string, all []T, nameOf func(T) string) error {
	var known []string
	for _, v := range all {
		known = append(known, nameOf(v))
	}
	return fmt.Errorf("%w%s", err, text.Unknown(name, nouns, known))
}
