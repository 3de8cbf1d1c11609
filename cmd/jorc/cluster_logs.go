package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/runs"
)

func runLogsCommand(env *environment) *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the last output of a run's tasks", ArgsUsage: "ID [NODE]",
		Description: "The end of the output (of a failed task at most 4 KB, otherwise 1 KB), and where the full log is if there is a log store; " +
			"without NODE of all members that have ended or wait. Values of params, environment variables and tokens are left out. " +
			"On the node itself 'jorc workflow logs run-ID' prints everything.",
		Action: env.runLogs,
	}
}

// runLog is what one member left.
type runLog struct {
	Node     string     `json:"node"`
	State    runs.State `json:"state"`
	Task     string     `json:"task"`
	ExitCode int        `json:"exit_code"`
	Why      string     `json:"why"`
	Tail     string     `json:"tail"`
	LogURL   string     `json:"log_url"`
}

func (e *environment) runLogs(c *cli.Context) error {
	args := arguments(c)
	if len(args) < 1 || len(args) > 2 {
		return usagef(c, "which ID, and maybe NODE?")
	}
	format, err := e.format(c)
	if err != nil {
		return err
	}
	r, err := e.runs(c)
	if err != nil {
		return err
	}
	d, err := r.Show(c.Context, args[0])
	if err != nil {
		return wrongID(c, err)
	}
	var tails map[string]string
	if len(args) == 1 {
		if tails, err = r.Tails(c.Context, d.ID); err != nil {
			return err
		}
	}
	logs, found := []runLog{}, false
	for _, m := range d.Members {
		if len(args) == 2 && m.Node != args[1] {
			continue
		}
		found = true
		tail := tails[m.Node]
		if len(args) == 2 {
			if tail, err = r.Tail(c.Context, d.ID, m.Node); err != nil {
				return err
			}
		}
		if len(args) == 2 || tail != "" || m.LogURL != "" || m.Why != "" || m.State.Ended() {
			logs = append(logs, runLog{m.Node, m.State, m.Task, m.ExitCode, m.Why, tail, m.LogURL})
		}
	}
	if !found && len(args) == 2 {
		return fmt.Errorf("run %q: node %q has no part in it: 'jorc cluster runs %s' lists who has", d.ID, args[1], d.ID)
	}
	for _, l := range logs {
		if len(args) == 2 && l.Tail == "" && l.LogURL == "" && l.State != runs.Pending {
			fmt.Fprintf(c.App.ErrWriter, "jorc: no output is here; 'jorc workflow logs run-%s' on %s prints the log\n", d.ID, printable(l.Node))
		}
	}
	if format == formatJSON {
		return writeJSON(c.App.Writer, logs)
	}
	for _, l := range logs {
		fmt.Fprintf(c.App.Writer, "%s: %s%s\n", l.Node, l.State, after(": ", printable(l.Why)))
		if l.LogURL != "" {
			fmt.Fprintf(c.App.Writer, "  full log: %s\n", printable(l.LogURL))
		}
		for line := range strings.Lines(l.Tail) {
			fmt.Fprintf(c.App.Writer, "  %s\n", printable(strings.TrimRight(line, "\r\n")))
		}
	}
	return nil
}

// after is text behind a mark, or nothing.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}
