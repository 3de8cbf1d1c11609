package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/config"
	"github.com/jorc/jorc/internal/text"
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
				Name:   "jobs",
				Usage:  "list this host's jobs, the newest first",
				Action: env.listJobs,
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
	if err := noArguments(c); err != nil {
		return err
	}
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	jobs, err := jobsOf(settings)
	if err != nil {
		return err
	}
	l := listing{columns: []string{"workflow", "tasks", "last job", "state", "updated"}, states: []string{"state"}}
	all := []listedWorkflow{}
	for i := range settings.Workflows {
		w := &settings.Workflows[i]
		listed := listedWorkflow{Name: w.Name, Tasks: []string{}}
		for k := range w.Tasks {
			listed.Tasks = append(listed.Tasks, w.Tasks[k].Name)
		}
		row := []string{w.Name, strconv.Itoa(len(w.Tasks)), "", "", ""}
		for k := range jobs {
			if jobs[k].Workflow == w.Name {
				listed.Last = &jobs[k]
				row = append(row[:2], jobs[k].ID, string(jobs[k].State), jobs[k].Updated.Format(time.RFC3339))
				break
			}
		}
		all, l.rows = append(all, listed), append(l.rows, row)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.App.ErrWriter, "jorc: no workflow is defined here; --config names a configuration")
	}
	return e.print(c, l, all)
}

func (e *environment) listJobs(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	jobs, err := jobsOf(settings)
	if err != nil {
		return err
	}
	l := listing{columns: []string{"job", "workflow", "version", "state", "task", "why"}, states: []string{"state"}}
	for i := range jobs {
		j := &jobs[i]
		l.rows = append(l.rows, []string{j.ID, j.Workflow, j.Version, string(j.State), j.Task, j.Why})
	}
	return e.print(c, l, jobs)
}

func jobsOf(settings *config.Config) ([]workflow.Result, error) {
	archive, err := workflow.OpenArchive(settings.StateDir)
	if err != nil {
		return nil, err
	}
	return archive.Jobs()
}

func (e *environment) workflowLogs(c *cli.Context) error {
	args := arguments(c)
	if len(args) > 1 {
		return usagef(c, "one job at a time")
	}
	settings, err := e.config(c)
	if err != nil {
		return err
	}
	archive, err := workflow.OpenArchive(settings.StateDir)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		jobs, err := archive.Jobs()
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			return fmt.Errorf("no jobs in %s", settings.StateDir)
		}
		args = []string{jobs[0].ID}
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	job, r, err := archive.Job(args[0])
	if errors.Is(err, workflow.ErrInvalid) {
		return usagef(c, "%v", err)
	}
	if errors.Is(err, workflow.ErrNoJob) {
		err = unknownJob(archive, args[0], err)
	}
	if err != nil {
		return err
	}
	if format == formatJSON {
		return writeJSON(c.App.Writer, job)
	}
	fmt.Fprintf(c.App.ErrWriter, "jorc: %s\n", printable(summary(job)))
	return r.WriteLog(c.App.Writer, job.ID, c.String("task"))
}

// unknownJob is err with the jobs that exist, the newest first.
func unknownJob(archive *workflow.Archive, id string, err error) error {
	jobs, listErr := archive.Jobs()
	if listErr != nil {
		return err
	}
	var known []string
	for i := range jobs {
		known = append(known, jobs[i].ID)
	}
	return fmt.Errorf("%w%s", err, text.Unknown(id, "jobs", known))
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
