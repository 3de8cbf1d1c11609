package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jorc/jorc/internal/orchestrator"
)

func (e *environment) showReport(c *cli.Context) error {
	which, err := optional(c)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(which, 10, 64)
	if which != "" && err != nil {
		return usagef(c, "%q is not the number of a report", which)
	}
	cl, err := e.existing(c, "")
	if err != nil {
		return err
	}
	all, err := orchestrator.ReadReports(c.Context, cl.Store())
	if err != nil {
		return err
	}
	if which != "" {
		for i, r := range all {
			if r.Number == number || number == 0 && i == len(all)-1 {
				return e.print(c, reportListing(r), r)
			}
		}
		return fmt.Errorf("cluster %q: report %d does not exist: 'jorc cluster report' lists the stored reports", cl.Name(), number)
	}
	warnUnorchestrated(c, cl, "no cycles run")
	l := listing{columns: []string{"number", "start", "duration", "orchestrator", "trigger", "outcome", "synced", "failed", "events", "decisions"}, states: []string{"outcome"}}
	for _, r := range all {
		l.rows = append(l.rows, []string{
			strconv.FormatUint(r.Number, 10), r.Start.UTC().Format(time.RFC3339), (time.Duration(r.Duration) * time.Millisecond).String(),
			r.Node, r.Trigger, r.Outcome, strconv.Itoa(r.Synced), strconv.Itoa(r.Failed), eventsText(r), strconv.Itoa(r.Decided),
		})
	}
	return e.print(c, l, append([]orchestrator.Report{}, all...))
}
