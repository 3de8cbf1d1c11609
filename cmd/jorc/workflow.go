package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/jorc/jorc/internal/converge"
	"github.com/jorc/jorc/internal/fleet"
	"github.com/jorc/jorc/internal/profile"
	"github.com/jorc/jorc/internal/workflow"
)

func workflowCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name:  "workflow",
		Usage: "run this host's workflows by hand, and read their logs",
		Subcommands: []*cli.Command{
			{
				Name:   "list",
				Usage:  "list the workflows defined on this host, with the last job of each",
				Action: env.listWorkflows,
			},
			runWorkflowCommand(env),
			{
				Name:        "jobs",
				Usage:       "list this host's jobs, the newest first",
				Description: "ORIGIN is what asked for the job, such as 'run 7f3a', 'jorc converge' or 'jorc workflow run'.",
				Action:      env.listJobs,
			},
			{
				Name:  "schedules",
				Usage: "list this host's triggers with a schedule: last and next run, missed due times",
				Description: "As the agent saved it: reading it needs neither Consul nor a running agent. Of several due times that were missed together, the last one " +
					"is shown. A next run in the past is overdue: the agent does not run, or the job before has not ended.",
				Action: env.listSchedules,
			},
			{
				Name:      "logs",
				Usage:     "print the output of a job's tasks",
				ArgsUsage: "[JOB]",
				Description: "JOB is one of 'jorc workflow jobs'; default: the newest. The log of a task is bounded: of more than 16 MiB the beginning is lost. " +
					"-o json prints the job with the state and history of its tasks instead.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "task", Usage: "only of the task `NAME`"},
				},
				Action: env.workflowLogs,
			},
		},
	}
}

// listedWorkflow is one answer of `workflow list -o json`.
type listedWorkflow struct {
	Name  string           `json:"name"`
	Tasks []string         `json:"tasks"`
	Last  *workflow.Result `json:"last_job"`
}

func (e *environment) listWorkflows(c *cli.Context) error {
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	jobs, err := jobsOf(settings)
	if err != nil {
		return err
	}
	all := []listedWorkflow{}
	for i := range settings.Workflows {
		w := &settings.Workflows[i]
		listed := listedWorkflow{Name: w.Name, Tasks: []string{}}
		for k := range w.Tasks {
			listed.Tasks = append(listed.Tasks, w.Tasks[k].Name)
		}
		if k := slices.IndexFunc(jobs, func(j workflow.Result) bool { return j.Workflow == w.Name }); k >= 0 {
			listed.Last = &jobs[k]
		}
		all = append(all, listed)
	}
	if len(all) == 0 {
		note(c, "no workflow is defined here; --config names a configuration")
	}
	return e.print(c, listingOf("workflow,tasks,last job,state*,updated", all, func(w listedWorkflow) []string {
		row := []string{w.Name, strconv.Itoa(len(w.Tasks)), "", "", ""}
		if w.Last != nil {
			row = append(row[:2], w.Last.ID, string(w.Last.State), w.Last.Updated.Format(time.RFC3339))
		}
		return row
	}), all)
}

func (e *environment) listJobs(c *cli.Context) error {
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	jobs, err := jobsOf(settings)
	if err != nil {
		return err
	}
	return e.print(c, listingOf("job,workflow,version,state*,task,why,origin", jobs, func(j workflow.Result) []string {
		return []string{j.ID, j.Workflow, j.Version, string(j.State), j.Task, j.Why, j.Origin}
	}), jobs)
}

func (e *environment) listSchedules(c *cli.Context) error {
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	client, err := consul.New(settings.Consul)
	if err != nil {
		return err
	}
	defer client.Close()
	all := workflow.Schedules(settings.StateDir, nodeName(c.Context, client, settings), settings.Triggers)
	if len(all) == 0 {
		note(c, "no trigger with a schedule is defined here; --config names a configuration")
	}
	return e.print(c, listingOf("trigger,schedule,zone,workflow,last run,state*,next run,missed,last missed,problem", all, func(s workflow.ScheduleStatus) []string {
		state, problem := "", s.Error
		if s.Last != nil {
			state, problem = string(s.Last.State), cmp.Or(s.Error, s.Last.Why)
		}
		return []string{
			s.Trigger, s.Schedule, s.Zone, s.Workflow, when(s.LastRun), state, when(s.NextRun), strconv.Itoa(s.Missed.Count), when(s.Missed.Due), problem,
		}
	}), all)
}

func jobsOf(settings *config.Config) ([]workflow.Result, error) {
	archive, err := workflow.OpenArchive(settings.StateDir)
	if err != nil {
		return nil, err
	}
	return archive.Jobs()
}

func (e *environment) workflowLogs(c *cli.Context) error {
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	archive, err := workflow.OpenArchive(settings.StateDir)
	if err != nil {
		return err
	}
	id := argument(c, 0)
	if id == "" {
		jobs, err := archive.Jobs()
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			return fmt.Errorf("no jobs in %s", settings.StateDir)
		}
		id = jobs[0].ID
	}
	job, r, err := archive.Job(id)
	switch {
	case errors.Is(err, workflow.ErrInvalid):
		return usagef(c, "%v", err)
	case errors.Is(err, workflow.ErrNoJob):
		if jobs, listErr := archive.Jobs(); listErr == nil {
			err = unknown(err, id, "jobs", jobs, func(j workflow.Result) string { return j.ID })
		}
		return err
	case err != nil:
		return err
	case e.format(c) == formatJSON:
		return writeJSON(c.App.Writer, job)
	}
	note(c, "%s", printable(summary(job)))
	return r.WriteLog(c.App.Writer, job.ID, c.String("task"))
}

// summary is a job in one line.
func summary(j workflow.Result) string {
	line := fmt.Sprintf("job %s, workflow %q: %s", j.ID, j.Workflow, j.State)
	if j.Task != "" {
		line += fmt.Sprintf(": task %q", j.Task)
	}
	if j.Why != "" {
		line += ": " + j.Why
	}
	return line
}

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
		Action: env.onLinux("jorc workflow run", env.runWorkflow),
	}
}

func (e *environment) runWorkflow(c *cli.Context) error {
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
	job := workflow.Job{ID: c.String("id"), Workflow: argument(c, 0), Params: params, Version: hostVersion(c, settings), Origin: workflow.ByHand, Out: true}
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
	return e.printJob(c, res)
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

// runner is a workflow.Runner as the configuration asks for. It asks Consul only for
// tasks that require something, and for templates that need data of the cluster.
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
		o.Params, o.Tokens = workflow.ParamsOf(fleet.New(client, settings.Prefix, settings.Cluster), node), workflow.TokensOf(client, settings.Prefix, settings.Cluster)
	}
	if o.Store, err = workflow.NewStore(settings.LogStore); err != nil {
		note(c, "complete logs are kept on this host only: %v", err)
	}
	if !c.Bool("quiet") {
		o.Changed, o.Output = (&progress{c: c}).show, c.App.ErrWriter
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
func hostVersion(c *cli.Context, settings *config.Config) string {
	version, err := converge.ReadVersionFile(settings.VersionFile)
	if err != nil && !errors.Is(err, cluster.ErrNoVersion) {
		note(c, "%v; continuing without a version", err)
		return ""
	}
	return version
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
	c    *cli.Context
	last workflow.Transition
}

func (p *progress) show(res workflow.Result) {
	added := res.History
	if i := slices.Index(added, p.last); i >= 0 {
		added = added[i+1:]
	}
	for _, t := range added {
		subject := "job " + res.ID
		if t.Task != "" {
			subject = "task " + t.Task
		}
		note(p.c, "%s", printable(subject+": "+t.State+after(": ", t.Text)))
		p.last = t
	}
}

// printJob prints the outcome of a job, and makes it an exit code.
func (e *environment) printJob(c *cli.Context, res workflow.Result) error {
	l := listingOf("task,state*,attempts,exit code,took", res.Tasks, func(t workflow.TaskStatus) []string {
		row := []string{t.Name, string(t.State), strconv.Itoa(t.Attempts), "", ""}
		if t.Attempts > 0 {
			row[3] = strconv.Itoa(t.ExitCode)
		}
		if !t.Ended.IsZero() && !t.Started.IsZero() {
			row[4] = t.Ended.Sub(t.Started).Round(time.Millisecond).String()
		}
		return row
	})
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
