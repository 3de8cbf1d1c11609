package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/catalog"
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
	if level == "" {
		return catalog.Functional, nil // an alias without the flag
	}
	if err := oneOf(c, "for", level, "functional", "addressable"); err != nil {
		return 0, err
	}
	return catalog.ParseLevel(level)
}

func (e *environment) listServices(c *cli.Context) error {
	if len(arguments(c)) > 0 {
		return usagef(c, "no arguments expected")
	}
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
	if len(leftOut) > 0 {
		fmt.Fprintf(c.App.ErrWriter, "jorc: left out %s with a name that Consul's HTTP API cannot read: %s; deregister it at its node\n",
			counted(count{len(leftOut), "service"}), quotedFew(leftOut))
	}
	l := listing{columns: []string{"service", "instances", "passing", "warning", "critical", "maintenance", "tags"}}
	for _, s := range all {
		l.rows = append(l.rows, []string{
			s.Service, strconv.Itoa(s.Instances), strconv.Itoa(s.Passing), strconv.Itoa(s.Warning),
			strconv.Itoa(s.Critical), strconv.Itoa(s.Maintenance), strings.Join(s.Tags, ","),
		})
	}
	return e.print(c, l, all)
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
	if more := len(names) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

func (e *environment) listNode(c *cli.Context, client *consul.Client, node string) error {
	all, err := catalog.ListNode(c.Context, client, node, consul.Query{})
	if errors.Is(err, consul.ErrNotFound) {
		err = e.unknownNode(c, client, node, err)
	}
	if err != nil {
		return err
	}
	l := listing{columns: []string{"service", "id", "address", "port", "status", "tags"}, states: []string{"status"}}
	for _, i := range all {
		l.rows = append(l.rows, []string{i.Service, i.ID, i.Address, strconv.Itoa(i.Port), i.Status, strings.Join(i.Tags, ",")})
	}
	return e.print(c, l, all)
}

// unknownNode is err with the nodes that exist, as far as they can be read.
func (e *environment) unknownNode(c *cli.Context, client *consul.Client, node string, err error) error {
	hosts, _, listErr := client.CatalogHosts(c.Context, consul.Query{})
	if listErr != nil {
		return err
	}
	var known []string
	for _, h := range hosts {
		known = append(known, h.Node)
	}
	return fmt.Errorf("%w%s", err, text.Unknown(node, "nodes", known))
}

// resolved is one answer of `service resolve -o json`.
type resolved struct {
	catalog.ServiceInstance
	DNSName string `json:"dns_name"`
}

// unknownService is err, with the existing services if none has the name.
func unknownService(c *cli.Context, client *consul.Client, name string, err error) error {
	all, _, listErr := catalog.List(c.Context, client, consul.Query{})
	if listErr != nil || slices.ContainsFunc(all, func(s catalog.ServiceSummary) bool { return s.Service == name }) {
		return err
	}
	known := []string{}
	for _, s := range all {
		known = append(known, s.Service)
	}
	return fmt.Errorf("%w%s", err, text.Unknown(name, "services", known))
}

func (e *environment) resolveService(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument NAME")
	}
	level, err := levelOf(c)
	if err != nil {
		return err
	}
	client, _, err := e.consul(c)
	if err != nil {
		return err
	}
	found, err := catalog.Resolve(c.Context, client, args[0], c.String("tag"), level, consul.Query{})
	if errors.Is(err, consul.ErrNotFound) {
		err = unknownService(c, client, args[0], err)
	}
	if err != nil {
		return err
	}
	l := listing{columns: []string{"address", "port", "node", "name"}}
	all, ports := []resolved{}, []int{}
	for _, i := range found {
		all, ports = append(all, resolved{i, i.NodeName()}), append(ports, i.Port)
		l.rows = append(l.rows, []string{i.Address, strconv.Itoa(i.Port), i.Node, i.NodeName()})
	}
	var answer any = all
	if c.Bool("port-only") {
		l = listing{columns: []string{"port"}}
		for _, p := range ports {
			l.rows = append(l.rows, []string{strconv.Itoa(p)})
		}
		answer = ports
	}
	if _, given := e.value(c, "output"); !given {
		return l.writePlain(c.App.Writer) // a line per instance is the promise
	}
	return e.print(c, l, answer)
}
