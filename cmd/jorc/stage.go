package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/text"
)

func stageCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "stage",
		Usage: "show and resume stages: new content of files, host by host",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the stages that hosts have", Action: env.onCluster(env.listStages)},
			{
				Name: "show", Usage: "show a stage: what stopped it, and where each host is", ArgsUsage: "STAGE",
				Description: "Prints first what stopped the stage: the host, what changed, and which checks failed. Then the hosts in the order in which a change reaches them. " +
					"Exits 1 for a stage that no host has.",
				Action: env.onCluster(env.showStage),
			},
			{
				Name: "resume", Usage: "approve a change that failed: hosts take it again", ArgsUsage: "STAGE",
				Description: "Without this no other host takes the change; another value needs no approval. With --node approves only what failed on that host. " +
					"Exits 1 if nothing stops the stage.",
				Flags:  []cli.Flag{reasonFlag()},
				Action: env.onCluster(env.resumeStage),
			},
		},
	}
}

func (e *environment) listStages(c *cli.Context, cl *target) error {
	all, err := stage.Show(c.Context, cl.Cluster, "", time.Now())
	if err != nil {
		return err
	}
	for _, s := range all {
		noteUnorchestratedStage(c, s)
	}
	l := listingOf("stage,state*,hosts,waiting,at_work,failed,since", all, func(s stage.Status) []string {
		return []string{
			s.Stage, s.State, strconv.Itoa(s.Counts.Hosts), strconv.Itoa(s.Counts.Waiting), strconv.Itoa(s.Counts.AtWork),
			strconv.Itoa(s.Counts.Failed), when(s.Since),
		}
	})
	return e.print(c, l, all)
}

// noteUnorchestratedStage notes that no host gets a turn.
func noteUnorchestratedStage(c *cli.Context, s stage.Status) {
	if !s.Orchestrated && s.Counts.Waiting > 0 {
		note(c, "stage %q: no orchestrator runs, so no host gets a turn: start an agent with orchestrator { enabled = true }", s.Stage)
	}
}

func (e *environment) showStage(c *cli.Context, cl *target) error {
	name := argument(c, 0)
	all, err := stage.Show(c.Context, cl.Cluster, name, time.Now())
	if err != nil {
		return err
	}
	s := all[0]
	noteUnorchestratedStage(c, s)
	l := rowsOf("host,state*,since,changed,detail")
	for _, stop := range s.Stops {
		state, detail := "stopped", stop.Reason
		if stop.Resumed != nil {
			state, detail = "resumed", stop.Resumed.String()
		}
		l.rows = append(l.rows, []string{stop.Node, state, when(stop.Since), stageNames(stop.Inputs.Names(), stop.Inputs.More), detail})
	}
	for _, h := range s.Hosts {
		detail := h.Waits
		if detail != "" {
			detail = "waits: " + detail
		} else if h.State == cluster.StageFailed || h.State == cluster.StageRestored || h.State == cluster.StageRestoring {
			detail = h.Reason
		}
		l.rows = append(l.rows, []string{h.Node, cmp.Or(h.State, "-"), when(h.Since), stageNames(h.Changed, 0), detail})
	}
	return e.print(c, l, s)
}

func stageNames(names []string, more int) string {
	if more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return text.Line(strings.Join(names, ", "), 120)
}

func (e *environment) resumeStage(c *cli.Context, cl *target) error {
	name := argument(c, 0)
	by, err := e.author(c)
	if err != nil {
		return err
	}
	if _, err := stage.Show(c.Context, cl.Cluster, name, time.Now()); err != nil {
		return err
	}
	node, _ := e.value(c, "node")
	resumed, err := stage.New(cl.Store()).Resume(c.Context, name, node, cluster.Hold{
		Since: time.Now().UTC().Truncate(time.Second), Reason: c.String("reason"), By: by,
	})
	if err != nil {
		return err
	}
	l := listingOf("host,changed,reason", resumed, func(s stage.Stop) []string {
		return []string{s.Node, stageNames(s.Inputs.Names(), s.Inputs.More), s.Reason}
	})
	return e.print(c, l, resumed)
}
