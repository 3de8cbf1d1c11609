package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/doctor"
)

func doctorCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what jorc depends on, with remedies",
		Description: "One line per check with its remedy: Consul's API, version and leader, this node, DNS, the token's rights, limits, clocks, the token file, the state directory, " +
			"the running agent, the configuration and the rights that it needs. Changes nothing. " +
			"Exits 0 when no check fails, 1 when any does, 3 when Consul does not answer.",
		Flags:  []cli.Flag{timeoutFlag()},
		Action: env.doctor,
	}
}

func (e *environment) doctor(c *cli.Context) error {
	within, err := timeout(c)
	if err != nil {
		return err
	}
	o := doctor.Options{Paths: e.configPaths(c), Timeout: within, NoAgent: e.linuxOnly("jorc agent")}
	if o.Config, o.Problem, err = e.examined(c, o.Paths); err != nil {
		return err
	}
	client, err := consul.New(o.Config.Consul)
	if err != nil {
		return err
	}
	defer client.Close()
	r := doctor.Examine(c.Context, client, o)
	if err := c.Context.Err(); err != nil {
		return err
	}
	l := listingOf("check,result*,finding,remedy", r.Findings, func(f doctor.Finding) []string {
		return []string{f.Check, strings.ToUpper(string(f.Status)), f.Detail, f.Remedy}
	})
	if err := e.print(c, l, r); err != nil {
		return err
	}
	if !r.Reachable {
		return &exitError{code: exitUnreachable}
	}
	return answerOf(!r.Failed())
}

// examined is the configuration in paths, or when it is wrong what holds
// without it, and what is wrong with it.
func (e *environment) examined(c *cli.Context, paths []string) (conf *config.Config, problem, err error) {
	conf, err = e.load(c, paths)
	if err == nil {
		return conf, agent.Check(conf), nil
	}
	if len(paths) == 0 || !errors.As(err, new(*config.Error)) {
		return nil, nil, err
	}
	problem = err
	conf, err = e.load(c, nil)
	return conf, problem, err
}

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
	return e.healthWith(c, func() ([]doctor.CheckState, error) { return nil, nil })
}

// healthWith lists failing checks and what failures returns.
func (e *environment) healthWith(c *cli.Context, failures func() ([]doctor.CheckState, error)) error {
	within, err := timeout(c)
	if err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	verbose := c.Bool("verbose")
	h, err := doctor.Health(c.Context, client, doctor.HealthOptions{
		Node: settings.Node, Warnings: verbose, Timeout: within,
		Anonymous: settings.Consul.Token == "" && settings.Consul.TokenFile == "",
	})
	if err != nil {
		return doctor.Explain(settings.Consul.Address, err)
	}
	failed, err := failures()
	if err != nil {
		return err
	}
	e.answers = "" // the answer is about this host, whichever cluster was asked for failures
	h.Checks = append(h.Checks, failed...)
	h.Healthy = h.Healthy && len(failed) == 0
	l := listingOf("service,check,state*,output", h.Checks, func(s doctor.CheckState) []string {
		return []string{cmp.Or(s.ServiceID, "-"), s.Check, s.State, s.Summary()}
	})
	if err := e.printProblems(c, l, h); err != nil {
		return err
	}
	switch {
	case !h.Healthy:
		return errNo
	case h.Hidden:
		return fmt.Errorf("read checks of node %q: %w: nothing fails that this token may see; give it node:read, and service:read on the services of this host", h.Node, consul.ErrDenied)
	case verbose:
		note(c, "node %s: none of %s fails", printable(h.Node), counted(count{h.Total, "check"}))
	}
	return nil
}

func pingCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "ping",
		Usage: "check that the local Consul agent and its leader answer",
		Description: "One line: node, datacenter, Consul's version, leader and the time for a round trip. Needs no rights; without agent:read it says less. " +
			"Exits 3 when Consul does not answer or knows no leader, 5 when it does not know the token.",
		Flags:  []cli.Flag{timeoutFlag()},
		Action: env.ping,
	}
}

// timeoutFlag bounds each question of ping, health and doctor.
func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: doctor.DefaultTimeout, Usage: "wait at most this long for each answer"}
}

// timeout is the value of timeoutFlag.
func timeout(c *cli.Context) (time.Duration, error) {
	d := c.Duration("timeout")
	if d <= 0 {
		return 0, usagef(c, "--timeout must be above 0")
	}
	return d, nil
}

func (e *environment) ping(c *cli.Context) error {
	within, err := timeout(c)
	if err != nil {
		return err
	}
	client, settings, err := e.consul(c)
	if err != nil {
		return err
	}
	p, failed := doctor.Ping(c.Context, client, settings.Consul.Address, within)
	if failed != nil && p.Node == "" {
		return failed
	}
	ms := fmt.Sprintf("%.2f", p.RoundTripMS)
	if e.format(c) == formatTable {
		_, err = fmt.Fprintln(c.App.Writer, sentence(p, ms))
	} else {
		err = e.print(c, listing{rows: [][]string{{p.Node, p.Datacenter, p.Version, p.Leader, ms}}}, p)
	}
	return cmp.Or(failed, err)
}

// sentence is the answer for people; what is not known is left out.
func sentence(p doctor.Pong, ms string) string {
	leader := "no leader"
	if p.Leader != "" {
		leader = fmt.Sprintf("leader %s, %s ms", p.Leader, ms)
	}
	if p.Node == "" {
		return fmt.Sprintf("Consul at %s: %s (the token may not ask for more: agent:read)", printable(p.Address), leader)
	}
	return fmt.Sprintf("%s (%s, Consul %s): %s", printable(p.Node), printable(p.Datacenter), printable(p.Version), leader)
}
