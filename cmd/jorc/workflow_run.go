package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/catalog"
	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/consul"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/workflow"
)

func runWorkflowCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a workflow on this host, with or without a cluster or Consul",
		ArgsUsage: "NAME",
		Description: "Tasks run one after another; what they print goes to stderr as it comes, a line per task to stdout at the end. " +
			"While another workflow runs on this host nothing is done, and the exit code is 4. " +
			"Exits 1 when a task failed, 124 when something that a task requires was still missing, " +
			"6 if a task asked to stop or reboot: run it again with the same --id to continue. " +
			"A param that a script needs and that is not given here is the member's, as 'jorc cluster profile get --effective' has it; " +
			"Consul is asked only for such. " +
			"A 'hold' file does not stop what is run by hand.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "param", KeepSpace: true, Usage: "a param as `NAME=VALUE`, VALUE is JSON if it is valid JSON, otherwise text; may be repeated"},
			&cli.BoolFlag{Name: "string", Usage: "treat values of params as plain strings", DisableDefaultText: true},
			&cli.BoolFlag{Name: "yaml", Usage: "read values of params as YAML", DisableDefaultText: true},
			&cli.BoolFlag{Name: "alone", Usage: "do not ask the cluster: there are no params but those given here", DisableDefaultText: true},
			&cli.StringFlag{Name: "id", DefaultText: "a new one", Usage: "`ID` of the job: an existing job continues, a finished one stays unchanged"},
			&cli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "wait at most this long for what tasks require; 0: no limit"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "show nothing until the end", DisableDefaultText: true},
		},
		Action: env.runWorkflow,
	}
}

func (e *environment) runWorkflow(c *cli.Context) error {
	args := arguments(c)
	if len(args) != 1 {
		return usagef(c, "missing argument NAME: 'jorc workflow list' lists the workflows")
	}
	if _, err := e.format(c); err != nil {
		return err
	}
	params, err := paramsOf(c)
	if err != nil {
		return err
	}
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	r, done, err := e.runner(c, settings)
	if err != nil {
		return err
	}
	defer done()
	job := workflow.Job{ID: c.String("id"), Workflow: args[0], Params: params, Version: e.hostVersion(settings), Origin: "jorc workflow run"}
	waiting, cancel := withTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	res, err := r.Drive(c.Context, job, workflow.Hooks{Wait: func(ctx context.Context, w workflow.Wait) (bool, error) {
		return waitByHand(ctx, waiting, w)
	}})
	switch {
	case errors.Is(err, workflow.ErrUnknown) && len(settings.Workflows) == 0:
		return usagef(c, "%v; name a configuration with --config", err)
	case errors.Is(err, consul.ErrDenied):
		return err
	case errors.Is(err, workflow.ErrInvalid):
		return usagef(c, "%v", err)
	case errors.Is(err, workflow.ErrBusy):
		return &exitError{code: exitConflict, err: err}
	case err != nil:
		return err
	}
	return e.tellJob(c, res)
}

func paramsOf(c *cli.Context) (profile.Params, error) {
	read, err := valueParser(c)
	if err != nil {
		return nil, err
	}
	params := profile.Params{}
	for _, arg := range c.StringSlice("param") {
		name, v, err := workflow.ParseParam(arg, read)
		if err != nil {
			return nil, usagef(c, "%v", err)
		}
		if _, twice := params[name]; twice {
			return nil, usagef(c, "param %q is given twice", name)
		}
		params[name] = v
	}
	return params, nil
}

// runner is a workflow.Runner as the configuration asks for. It speaks to
// Consul only for tasks that require something, and for templates that need what
// the cluster knows.
func (e *environment) runner(c *cli.Context, settings *config.Config) (*workflow.Runner, func(), error) {
	log, err := e.commandLogger(c, "error") // transitions are shown anyway
	if err != nil {
		return nil, nil, err
	}
	dns, err := catalog.NewResolver(settings.DNS.Addr)
	if err != nil {
		return nil, nil, err
	}
	client, err := consul.New(settings.Consul)
	if err != nil {
		return nil, nil, err
	}
	node := nodeName(c.Context, client, settings)
	o := workflow.Options{
		StateDir: settings.StateDir, Workflows: settings.Workflows, Node: node, Environ: workflow.Environ(settings),
		Requirements: workflow.FromBlocker(blocker.New(dns, blocker.FromClient(client))), Log: log,
	}
	if !c.Bool("alone") {
		o.Params, o.Tokens = workflow.ParamsOf(cluster.New(client, settings.Prefix, settings.Cluster), node), workflow.TokensOf(client, settings.Prefix, settings.Cluster)
	}
	if o.Store, err = workflow.NewStore(settings.LogStore); err != nil {
		fmt.Fprintf(e.stderr, "jorc: complete logs are kept on this host only: %v\n", err)
	}
	if !c.Bool("quiet") {
		p := &progress{w: c.App.ErrWriter}
		o.Changed, o.Output = p.show, c.App.ErrWriter
	}
	return workflow.New(o), client.Close, nil
}

// nodeName is the agent's name of this node: the configured one, else the one that
// the agent has written to its state directory. Where no agent has run yet it is
// that of the Consul agent, as the agent would have it, or else the host's.
func nodeName(ctx context.Context, client *consul.Client, settings *config.Config) string {
	const patience = 2 * time.Second // a Consul that does not answer is as good as none
	if settings.Node != "" {
		return settings.Node
	}
	if owner, err := os.ReadFile(filepath.Join(settings.StateDir, config.NodeFile)); err == nil && strings.TrimSpace(string(owner)) != "" {
		return strings.TrimSpace(string(owner))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if self, err := client.AgentSelf(ctx); err == nil {
		return self.Config.NodeName
	}
	name, _ := os.Hostname() // empty if the host has none
	return name
}

// hostVersion is the version in the version file; empty if that holds none.
func (e *environment) hostVersion(settings *config.Config) string {
	v, err := cluster.ReadVersionFile(settings.VersionFile)
	if err != nil && !errors.Is(err, cluster.ErrNoVersion) {
		fmt.Fprintf(e.stderr, "jorc: %v; continuing without a version\n", err)
	}
	return v
}

// waitByHand waits for services that the next task requires, until timeout ends.
// Everything else is for the person to decide.
func waitByHand(ctx, timeout context.Context, w workflow.Wait) (again bool, err error) {
	if w.Err != nil || w.Result.State != workflow.Pending {
		return false, w.Err
	}
	if err := w.Until(timeout); timeout.Err() == nil || ctx.Err() != nil {
		return err == nil, err
	}
	return false, nil
}

// progress shows the transitions of a job as they happen.
type progress struct {
	w    io.Writer
	last workflow.Transition
}

func (p *progress) show(res workflow.Result) {
	news := res.History
	if i := slices.Index(news, p.last); i >= 0 {
		news = news[i+1:]
	}
	for _, t := range news {
		what := "job " + res.ID
		if t.Task != "" {
			what = "task " + t.Task
		}
		line := what + ": " + t.State
		if t.Text != "" {
			line += ": " + t.Text
		}
		fmt.Fprintf(p.w, "jorc: %s\n", printable(line))
		p.last = t
	}
}

// tellJob prints what a job came to, and makes it an exit code.
func (e *environment) tellJob(c *cli.Context, res workflow.Result) error {
	l := listing{columns: []string{"task", "state", "attempts", "exit code", "took"}, states: []string{"state"}}
	for _, t := range res.Tasks {
		row := []string{t.Name, string(t.State), strconv.Itoa(t.Attempts), "", ""}
		if t.Attempts > 0 {
			row[3] = strconv.Itoa(t.ExitCode)
		}
		if !t.Ended.IsZero() && !t.Started.IsZero() {
			row[4] = t.Ended.Sub(t.Started).Round(time.Millisecond).String()
		}
		l.rows = append(l.rows, row)
	}
	if err := e.print(c, l, res); err != nil {
		return err
	}
	code := exitFailed
	switch res.State {
	case workflow.Success:
		return nil
	case workflow.Pending:
		code = exitTimeout
	case workflow.Stopped, workflow.Reboot, workflow.Held:
		code = exitStopped
	}
	text := summary(res)
	if res.Open && res.State == workflow.Reboot {
		text += fmt.Sprintf("; reboot, then continue with 'jorc workflow run %s --id %s'", res.Workflow, res.ID)
	} else if res.Open {
		text += fmt.Sprintf("; continue with 'jorc workflow run %s --id %s'", res.Workflow, res.ID)
	} else if res.Task != "" {
		text += fmt.Sprintf("; see 'jorc workflow logs %s'", res.ID)
	}
	return &exitError{code: code, err: errors.New(text)}
}
