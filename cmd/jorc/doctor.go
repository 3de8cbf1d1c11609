package main

import (
	"errors"
	"strings"

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
	if err := noArguments(c); err != nil {
		return err
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	within, err := timeout(c)
	if err != nil {
		return err
	}
	o := doctor.Options{Paths: e.configPaths(c), Timeout: within}
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
	l := listing{columns: []string{"check", "result", "finding", "remedy"}, states: []string{"result"}}
	for _, f := range r.Findings {
		l.rows = append(l.rows, []string{f.Check, strings.ToUpper(string(f.Status)), f.Detail, f.Remedy})
	}
	if err := e.print(c, l, r); err != nil {
		return err
	}
	switch {
	case !r.Reachable:
		return &exitError{code: exitUnreachable}
	case r.Failed():
		return &exitError{code: exitFailed}
	}
	return nil
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
