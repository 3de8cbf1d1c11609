package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

func reasonFlag() cli.Flag {
	return &cli.StringFlag{Name: "reason", Usage: "`REASON` shown to others"}
}

func pauseCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "pause", Usage: "pause the cluster: nothing new starts, and waits exit 6",
		Flags: []cli.Flag{reasonFlag()},
		Action: env.control("it is paused already", func(c *cli.Context, cl *cluster.Cluster, h cluster.Hold) (bool, error) {
			return cl.Pause(c.Context, h)
		}),
	}
}

func resumeCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "end a pause",
		Action: env.control("it is not paused", func(c *cli.Context, cl *cluster.Cluster, _ cluster.Hold) (bool, error) {
			return cl.Resume(c.Context)
		}),
	}
}

const scopeText = "Without --role or --node the whole cluster. A hold of a node takes precedence over one of its roles, and that over one of the cluster."

func holdCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "hold", Usage: "stop convergence in the cluster, a role or a node (--node)", Description: scopeText,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "role", Usage: "members with `ROLE`"}, reasonFlag(),
			&cli.BoolFlag{Name: "force", Usage: "also a role that no member has, or a node that does not exist", DisableDefaultText: true},
		},
		Action: env.control("it is held already", func(c *cli.Context, cl *cluster.Cluster, h cluster.Hold) (bool, error) {
			s, err := holdScope(c)
			if err == nil && !c.Bool("force") {
				err = checkScope(c, cl, s)
			}
			if err != nil {
				return false, err
			}
			return cl.Hold(c.Context, s, h)
		}),
	}
}

func unholdCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "unhold", Usage: "allow convergence again in the cluster, a role or a node (--node)",
		Description: scopeText + " While a wider hold is in force, an exception from it is stored.",
		Flags:       []cli.Flag{&cli.StringFlag{Name: "role", Usage: "members with `ROLE`"}, reasonFlag()},
		Action: env.control("it is not held", func(c *cli.Context, cl *cluster.Cluster, h cluster.Hold) (bool, error) {
			s, err := holdScope(c)
			if err == nil {
				err = checkHeld(c, cl, s)
			}
			if err != nil {
				return false, err
			}
			return cl.Unhold(c.Context, s, h)
		}),
	}
}

func observeOnlyCommand(env *environment) *cli.Command {
	set := func(on bool) func(*cli.Context, *cluster.Cluster, cluster.Hold) (bool, error) {
		return func(c *cli.Context, cl *cluster.Cluster, h cluster.Hold) (bool, error) {
			return cl.SetObserveOnly(c.Context, on, h)
		}
	}
	return &cli.Command{
		Name: "observe-only", Usage: "switch the orchestrator between observing only and deciding",
		Subcommands: []*cli.Command{
			{Name: "on", Usage: "observe only", Flags: []cli.Flag{reasonFlag()}, Action: env.control("it is on already", set(true))},
			{Name: "off", Usage: "decide again", Action: env.control("it is off already", set(false))},
		},
	}
}

// holdScope is what --role and --node say. JORC_NODE does not count: no caller
// wants to hold one node and means the cluster, or the reverse.
func holdScope(c *cli.Context) (cluster.Scope, error) {
	s := cluster.Scope{Role: c.String("role")}
	if c.IsSet("node") {
		s.Node = c.String("node")
	}
	if s.Role != "" && s.Node != "" {
		return s, usagef(c, "--role and --node exclude each other")
	}
	if c.IsSet("role") && s.Role == "" || c.IsSet("node") && s.Node == "" {
		return s, usagef(c, "a name must not be empty")
	}
	return s, nil
}

// checkScope fails for a role or node that does not exist.
func checkScope(c *cli.Context, cl *cluster.Cluster, s cluster.Scope) error {
	switch {
	case s.Node != "":
		return cl.CheckHost(c.Context, s.Node)
	case s.Role != "":
		return cl.CheckRole(c.Context, s.Role)
	}
	return nil
}

// checkHeld is checkScope for what may have been held in advance.
func checkHeld(c *cli.Context, cl *cluster.Cluster, s cluster.Scope) error {
	if s.Node != "" {
		control, err := cl.ControlOf(c.Context, s.Node)
		if _, held := control.Nodes[s.Node]; err != nil || held {
			return err
		}
	}
	return checkScope(c, cl, s)
}

// control is an action that changes what holds a cluster; already is said when
// there was nothing to change.
func (e *environment) control(already string, change func(*cli.Context, *cluster.Cluster, cluster.Hold) (bool, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := none(c); err != nil {
			return err
		}
		cl, err := e.existing(c, "")
		if err != nil {
			return err
		}
		by, err := e.author(c)
		if err != nil {
			return err
		}
		h := cluster.Hold{Since: time.Now().UTC().Truncate(time.Second), Reason: c.String("reason"), By: by}
		changed, err := change(c, cl, h)
		if err != nil {
			return err
		}
		if !changed {
			fmt.Fprintf(c.App.ErrWriter, "jorc: cluster %q: %s; nothing was changed\n", cl.Name(), already)
			return nil
		}
		return nil
	}
}
