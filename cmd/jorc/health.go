package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/doctor"
)

func healthCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "list this host's failing health checks",
		Description: "One line per check of the node and its services that is critical or in maintenance: service (none: the node itself), check, state and the first line " +
			"of its output. Exits 1 when there are any, 5 when the token may not see all checks. Warnings are shown with --verbose and do not count.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "also show warnings, and report if nothing fails", DisableDefaultText: true},
			timeoutFlag(),
		},
		Action: env.health,
	}
}

func (e *environment) health(c *cli.Context) error {
	none := func(*consul.Client, *config.Config) ([]doctor.CheckState, error) { return nil, nil }
	return e.healthWith(c, none)
}

// healthWith lists failing checks and what failures returns.
func (e *environment) healthWith(c *cli.Context, failures func(*consul.Client, *config.Config) ([]doctor.CheckState, error)) error {
	if err := noArguments(c); err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	within, err := timeout(c)
	if err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	defer client.Close()
	verbose := c.Bool("verbose")
	h, err := doctor.Health(c.Context, client, doctor.HealthOptions{
		Node: settings.Node, Warnings: verbose, Timeout: within,
		Anonymous: settings.Consul.Token == "" && settings.Consul.TokenFile == "",
	})
	if err != nil {
		return doctor.Explain(settings.Consul.Address, err)
	}
	failed, err := failures(client, settings)
	if err != nil {
		return err
	}
	h.Checks = append(h.Checks, failed...)
	h.Healthy = h.Healthy && len(failed) == 0
	if len(h.Checks) > 0 || format == formatJSON { // no output means no failure
		if err := e.print(c, healthListing(h), h); err != nil {
			return err
		}
	}
	switch {
	case !h.Healthy:
		return &exitError{code: exitFailed}
	case h.Hidden:
		return fmt.Errorf("read checks of node %q: %w: nothing fails that this token may see; give it node:read, and service:read on the services of this host", h.Node, consul.ErrDenied)
	case verbose:
		fmt.Fprintf(c.App.ErrWriter, "jorc: node %s: none of %s fails\n", printable(h.Node), counted(count{h.Total, "check"}))
	}
	return nil
}

func healthListing(h doctor.NodeHealth) listing {
	l := listing{columns: []string{"service", "check", "state", "output"}, states: []string{"state"}}
	for _, s := range h.Checks {
		service := s.ServiceID
		if service == "" {
			service = "-"
		}
		l.rows = append(l.rows, []string{service, s.Check, s.State, s.Summary()})
	}
	return l
}
