package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/budget"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/pace"
	"github.com/jorc/jorc/internal/stage"
	"github.com/jorc/jorc/internal/text"
)

func stageCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "stage",
		Usage: "show, approve and resume stages: new content of files, host by host",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the stages that hosts have", Action: env.onCluster(env.listStages)},
			{
				Name: "show", Usage: "show a stage: what stopped it, and where each host is", ArgsUsage: "STAGE",
				Description: "Prints first what stopped the stage: the host, what changed, and which checks failed; or the gate, and the last line of its output. " +
					"Then the step whose gate the next hosts wait for, and the hosts in the order in which a change reaches them. " +
					"Exits 1 for a stage that no host has.",
				Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.showStage(c, cl, argument(c, 0)) }),
			},
			{
				Name: "approve", Usage: "with approve_each, let the next step begin", ArgsUsage: "STAGE",
				Description: "The next step begins as soon as the present one is done and its gate is passed. 'jorc stage show' has who approved it. " +
					"Exits 1 and changes nothing if no step waits for approval, or the step is stopped.",
				Flags:  []cli.Flag{reasonFlag()},
				Action: env.onCluster(func(c *cli.Context, cl *target) error { return env.approveStage(c, cl, argument(c, 0)) }),
			},
			{
				Name: "resume", Usage: "approve a change that failed: hosts take it again", ArgsUsage: "STAGE",
				Description: "Without this no other host takes the change; another value, or the one from before, needs no approval. With --node approves only what failed on that host. (JORC_NODE does not count here.) " +
					"After a gate that failed the gate of the step begins again, with its bake. " +
					"With --during-freeze or --over-budget it approves no failure: hosts take the content that they wait for now although there is a freeze, or the budget is used up; other content waits. " +
					"Exits 1 if nothing stops the stage; with these flags if no host waits for content.",
				Flags: []cli.Flag{reasonFlag(), duringFreezeFlag(), overBudgetFlag()},
				Action: env.onCluster(func(c *cli.Context, cl *target) error {
					return env.resumeStage(c, cl, argument(c, 0), c.String("node")) // not JORC_NODE: that names this host
				}),
			},
		},
	}
}

func (e *environment) listStages(c *cli.Context, cl *target) error {
	all, err := stage.Show(c.Context, cl.Cluster, "", nil, time.Now())
	if err != nil {
		return err
	}
	for _, s := range all {
		noteUnorchestratedStage(c, s)
	}
	l := listingOf("stage,state*,hosts,waiting,working,failed,since", all, func(s stage.Status) []string {
		return []string{
			s.Stage, s.State, strconv.Itoa(s.Counts.Members), strconv.Itoa(s.Counts.Waiting), strconv.Itoa(s.Counts.Working),
			strconv.Itoa(s.Counts.Failed), when(s.Since),
		}
	})
	return e.print(c, l, all)
}

// noteUnorchestratedStage notes that no host gets a grant.
func noteUnorchestratedStage(c *cli.Context, s stage.Status) {
	if !s.Orchestrated && s.Counts.Waiting > 0 {
		note(c, "stage %q: no orchestrator runs, so no host gets a grant: start an agent with orchestrator { enabled = true }", s.Stage)
	}
}

func (e *environment) showStage(c *cli.Context, cl *target, name string) error {
	all, err := stage.Show(c.Context, cl.Cluster, name, budget.OfState(cl.rollouts(), readLife), time.Now())
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
		l.rows = append(l.rows, []string{cmp.Or(stop.Node, stop.Step), state, when(stop.Since), stageNames(stop.Inputs.Names(), stop.Inputs.More), detail})
	}
	if step := s.Step; step != nil && step.Gate != nil && len(step.Waits) > 0 {
		l.rows = append(l.rows, []string{step.Text, "gate", when(step.Gate.Since), "", "waits: " + strings.Join(step.Waits, "; ")})
	}
	if g := s.PassedGate; g != nil {
		detail := g.Answer
		if g.By != "" {
			detail = strings.TrimSuffix("approved by "+g.By+": "+g.Answer, ": ")
		}
		l.rows = append(l.rows, []string{g.Step, "passed", when(g.At), "", detail})
	}
	for _, x := range s.Exempt {
		for _, why := range []struct{ what, reason string }{{"during freeze", x.DuringFreeze}, {"over budget", x.OverBudget}} {
			if why.reason != "" {
				hold := cluster.Hold{Since: x.Since, Reason: why.reason, By: x.By}
				l.rows = append(l.rows, []string{"", why.what, when(x.Since), stageNames(x.Inputs.Names(), len(x.Contents)), hold.String()})
			}
		}
	}
	for _, h := range s.Hosts {
		l.rows = append(l.rows, []string{h.Node, h.State.String(), when(h.Since), stageNames(h.Changed, 0), h.Detail})
	}
	return e.print(c, l, s)
}

func stageNames(names []string, more int) string {
	return text.Line(text.FewOf(", ", names, len(names)+more), 120)
}

func (e *environment) approveStage(c *cli.Context, cl *target, name string) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	all, err := stage.Show(c.Context, cl.Cluster, name, nil, time.Now())
	if err != nil {
		return err
	}
	if !all[0].ApproveEach {
		return fmt.Errorf("stage %q: %w: no host has it with approve_each", name, stage.ErrNotWaiting)
	}
	step, err := stage.New(cl.Store()).Approve(c.Context, name, cluster.Hold{
		Since: time.Now().UTC().Truncate(time.Second), Reason: c.String("reason"), By: by,
	})
	if err != nil {
		return err
	}
	l := listingOf("step,hosts", []stage.Step{step}, func(s stage.Step) []string {
		return []string{s.String(), stageNames(s.HostNames(), 0)}
	})
	return e.print(c, l, step)
}

// resumeStage approves what failed, on one node or, empty, on all.
func (e *environment) resumeStage(c *cli.Context, cl *target, name, node string) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	if _, err := stage.Show(c.Context, cl.Cluster, name, nil, time.Now()); err != nil {
		return err
	}
	exceptions, err := exceptionsOf(c)
	if err != nil {
		return err
	}
	if exceptions != (pace.Exceptions{}) {
		return e.exemptStage(c, cl, name, node, stage.Exemption{Exceptions: exceptions, By: by, Since: time.Now().UTC().Truncate(time.Second)})
	}
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

// exemptStage lets hosts take what waits now although a rule of the cluster forbids it.
func (e *environment) exemptStage(c *cli.Context, cl *target, name, node string, x stage.Exemption) error {
	waiting, err := stage.New(cl.Store()).Exempt(c.Context, cl.Cluster, name, node, x)
	if err != nil {
		return err
	}
	type exempted struct {
		Node    string   `json:"node"`
		Changed []string `json:"changed"`
	}
	all := make([]exempted, len(waiting))
	for i, h := range waiting {
		all[i] = exempted{h.Node, h.Report.Changed.Names()}
	}
	return e.print(c, listingOf("host,changed", all, func(x exempted) []string { return []string{x.Node, stageNames(x.Changed, 0)} }), all)
}

// giveUpFiles gives up on the grants of a host in stages.
func (e *environment) giveUpFiles(c *cli.Context, cl *target, host string) error {
	by, err := e.author(c)
	if err != nil {
		return err
	}
	stages, err := stage.GiveUp(c.Context, cl.Cluster, host, by, c.String("reason"))
	if err != nil {
		return err
	}
	note(c, "the next host may begin; %s continues with its files when it can", printable(host))
	rows, all := [][]string{}, []map[string]string{}
	for _, name := range stages {
		id := cluster.ChangeID(cluster.KindFiles, name)
		rows, all = append(rows, []string{host, id}), append(all, map[string]string{"host": host, "change": id})
	}
	return e.print(c, rowsOf("host,change", rows...), all)
}
