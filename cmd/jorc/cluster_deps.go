package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
)

func depsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "deps",
		Usage: "show which hosts require services of which others",
		Description: "Made from the services that members provide and those that their static configuration requires. A requirement of addressable instances blocks no host. " +
			"In a cycle that no other provider breaks the members wait for each other without end.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "check", Usage: "print cycles and nothing else; exit 1 when there is one", DisableDefaultText: true},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + joinOr(cluster.DepsFormats()), Value: cluster.DepsText},
		},
		Action: env.showDeps,
	}
}

// dependencies is the answer of `cluster deps -o json`.
type dependencies struct {
	Members  []string            `json:"members"`
	Provides map[string][]string `json:"provides"` // service → members
	Requires []cluster.Edge      `json:"requires"`
	Cycles   [][]string          `json:"cycles"`
	Stuck    []string            `json:"stuck"`
}

func (e *environment) showDeps(c *cli.Context) error {
	if err := none(c); err != nil {
		return err
	}
	if err := oneOf(c, "format", c.String("format"), cluster.DepsFormats()...); err != nil {
		return err
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	members, err := cl.Members(c.Context, cluster.MembersOptions{Unreadable: unreadable(c)})
	if err != nil {
		return err
	}
	g := cluster.Dependencies(members)
	switch {
	case format == formatJSON:
		err = e.writeJSON(c.App.Writer, dependencies{append([]string{}, g.Nodes...), g.Services, g.Edges, g.Cycles, g.Stuck})
	case c.Bool("check"):
		for _, cycle := range g.Cycles {
			if _, err := fmt.Fprintln(c.App.Writer, g.CycleText(cycle)); err != nil {
				return err
			}
		}
	default:
		var text string
		if text, err = g.Write(c.String("format")); err == nil {
			_, err = fmt.Fprint(c.App.Writer, text)
		}
	}
	if err == nil && c.Bool("check") && len(g.Cycles) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

// unreadable names on stderr what an answer lacks because it cannot be read.
func unreadable(c *cli.Context) func(key string, err error) {
	return func(key string, err error) {
		fmt.Fprintf(c.App.ErrWriter, "jorc: %s was left out: %v\n", key, err)
	}
}
