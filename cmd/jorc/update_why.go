package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/agent"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/rollout"
	"github.com/jorc/jorc/internal/slots"
)

func whyCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "why", Usage: "explain why a host does not run the desired version", ArgsUsage: "[HOST]",
		Description: "Lists what keeps HOST (default: this one) from updating: dead, held, paused, failed, not admitted yet, waiting for a grant. " +
			"Exits 0 when it runs the desired version, 1 when it does not, 6 when it is held, or the rollout is paused or aborted.",
		Action: env.why,
	}
}

func (e *environment) why(c *cli.Context) error {
	args := arguments(c)
	if len(args) > 1 {
		return usagef(c, "one host at a time")
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	ledger, client, settings, err := e.ledger(c)
	if err != nil {
		return err
	}
	defer client.Close()
	host, err := hostNamed(c, client, settings, "")
	own := err == nil
	if len(args) == 1 { // also where it cannot be told which host this is
		if host, own, err = args[0], own && host == args[0], nil; !own {
			err = ledger.CheckHost(c.Context, host)
		}
	}
	if err != nil {
		return err
	}
	facts, err := ledger.WhyFacts(c.Context, host)
	if err != nil {
		return err
	}
	if facts.Held, err = holds(c, client, settings, host); err != nil {
		return err
	}
	if own { // the agent may not run, or may not have reported it yet
		facts.HoldFile = cmp.Or(agent.HoldReason(settings.StateDir), facts.HoldFile)
	}
	if facts.Desired != "" && facts.Desired != facts.Report.Version {
		if facts.Rollout, err = rollout.New(client, settings.Prefix, settings.Cluster).Why(c.Context, host); err != nil {
			return err
		}
		if facts.Slots, err = e.slotsOf(c, host); err != nil { // the other reasons do not depend on them
			fmt.Fprintf(c.App.ErrWriter, "jorc: cannot read slots: %v\n", err)
		}
	}
	w := cluster.Explain(facts)
	l := listing{columns: []string{"reason", "detail"}}
	for _, r := range w.Reasons {
		l.rows = append(l.rows, []string{r.Reason, r.Detail})
	}
	if err := e.print(c, l, w); err != nil || !w.Pending {
		return err
	}
	stopped := slices.ContainsFunc(w.Reasons, func(r cluster.Reason) bool { return r.Reason == cluster.WhyHeld || r.Reason == cluster.WhyStopped })
	if stopped {
		return &exitError{code: exitStopped}
	}
	return &exitError{code: exitFailed}
}

// slotsOf says in words which slots host holds or waits for, as commands under
// 'jorc cluster lock' and templates do.
func (e *environment) slotsOf(c *cli.Context, host string) (all []string, err error) {
	s, client, err := e.slots(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	groups, err := s.Groups(c.Context)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		v, _, err := s.Show(c.Context, group)
		if err != nil {
			return all, err
		}
		for _, list := range []struct {
			verb    string
			entries []slots.Entry
		}{{"it holds a slot of group", v.Holders}, {"it waits for a slot of group", v.Queue}} {
			for _, entry := range list.entries {
				if entry.Node == host {
					all = append(all, fmt.Sprintf("%s %q since %s%s", list.verb, group, entry.Since.UTC().Format(time.RFC3339), after(": ", entry.Reason)))
				}
			}
		}
	}
	return all, nil
}

// holds says in words what holds host, its roles or its cluster.
func holds(c *cli.Context, client *consul.Client, settings *config.Config, host string) ([]string, error) {
	cl := cluster.New(client, settings.Prefix, settings.Cluster)
	control, err := cl.ControlOf(c.Context, host)
	if err != nil {
		return nil, err
	}
	var all []string
	if control.Paused != nil {
		all = append(all, "the cluster is paused "+control.Paused.String())
	}
	if control.ObserveOnly != nil {
		all = append(all, "the cluster is only observed "+control.ObserveOnly.String())
	}
	if control.Hold == nil && len(control.Roles) == 0 && len(control.Nodes) == 0 {
		return all, nil
	}
	view, err := cl.View(c.Context, host)
	if err != nil && !errors.Is(err, cluster.ErrNoCluster) {
		return nil, err
	}
	if h, ok := control.Held(host, view.Roles()); ok {
		all = append(all, "convergence is held "+h.String())
	}
	return all, nil
}
