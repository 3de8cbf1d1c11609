package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/workflow"
)

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
		text += fmt.Sprintf("; reboot, and then go on with 'jorc workflow run %s --id %s'", res.Workflow, res.ID)
	} else if res.Open {
		text += fmt.Sprintf("; go on with 'jorc workflow run %s --id %s'", res.Workflow, res.ID)
	} else if res.Task != "" {
		text += fmt.Sprintf("; see 'jorc workflow logs %s'", res.ID)
	}
	return &exitError{code: code, err: errors.New(text)}
}
