package agent

import (
	"context"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/cluster"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/supervise"
)

// Pauses between attempts to report the processes' state.
const (
	firstReport = time.Second
	lastReport  = 30 * time.Second
)

// runProcessReport keeps the category "processes" of the host's report: failed while a
// process does not stay up, success when all do again. The orchestrator makes events
// of its changes. A host whose processes never failed reports nothing.
func (p *part) runProcessReport(ctx context.Context) error {
	if err := p.joined(ctx); err != nil {
		return nil // ctx ended
	}
	for reported := false; ctx.Err() == nil; {
		if all := p.processes.Status(); len(all) > 0 || reported {
			reported = true
			_ = concurrency.Retry(ctx, concurrency.NewBackoff(firstReport, lastReport), func(ctx context.Context) error {
				return p.reportProcesses(ctx, all)
			}, func(err error, _ time.Duration) {
				p.log.Warn("cannot report the state of processes, will retry", "error", err)
			}) // the loop's condition notices ctx's end
		}
		_ = p.processesChanged.Wait(ctx)
	}
	return nil
}

func (p *part) reportProcesses(ctx context.Context, all []supervise.Status) error {
	var failed []string
	settled := true
	for _, s := range all {
		switch s.State {
		case supervise.StateFailed:
			failed = append(failed, s.Name+": "+s.Error)
		case supervise.StateRunning:
		default:
			settled = false
		}
	}
	_, err := p.report.Change(ctx, func(d cluster.Report) (cluster.Report, error) {
		before := d.States[cluster.CategoryProcesses].State
		switch {
		case len(failed) > 0:
			return d.With(cluster.CategoryProcesses, cluster.CategoryState{State: cluster.StateFailed, Version: d.Version, Detail: strings.Join(failed, "\n")}, time.Now()), nil
		case settled && before == cluster.StateFailed:
			return d.With(cluster.CategoryProcesses, cluster.CategoryState{State: cluster.StateSuccess, Version: d.Version}, time.Now()), nil
		}
		return d, nil
	})
	return err
}
