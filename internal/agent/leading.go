package agent

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/workflow"
)

// errLeadsNoMore ends a workflow between two tasks.
var errLeadsNoMore = errors.New("this member leads no more")

// stepDownWithin bounds the workflow of a former leader: after
// cluster.Timing.StepDown another takes its place anyway.
const stepDownWithin = time.Minute

// lead runs on_lead when this member begins to lead, and on_step_down when it
// ceases to: ctx ends then. The place is given to nobody else before that
// workflow has ended, or the time for stepping down has run out.
func (p *part) lead(ctx context.Context) {
	p.log.Info("this member leads now", "cluster", p.cluster.Name())
	if name := p.conf.Member.OnLead; name != "" {
		p.runLeading(ctx, workflow.Job{Workflow: name, Origin: "leading cluster " + p.cluster.Name(), Between: func(context.Context) error {
			if ctx.Err() != nil {
				return errLeadsNoMore
			}
			return nil
		}})
	}
	<-ctx.Done()
	if p.running.Err() != nil {
		return // the agent ends, or has a new configuration; the place stays this member's
	}
	p.log.Info("this member leads no more", "cluster", p.cluster.Name())
	if name := p.conf.Member.OnStepDown; name != "" {
		down, cancel := context.WithTimeout(p.running, stepDownWithin)
		defer cancel()
		p.runLeading(down, workflow.Job{Workflow: name, Origin: "no longer leading cluster " + p.cluster.Name()})
	}
}

// runLeading runs a job to its end. One that waits for something is taken up
// again when that is there; one that failed stays so, told by its job.
func (p *part) runLeading(ctx context.Context, job workflow.Job) {
	for {
		res, err := p.jobs.Run(p.running, job)
		switch {
		case errors.Is(err, workflow.ErrBusy):
			if concurrency.Sleep(ctx, time.Second) != nil {
				return
			}
			continue
		case err != nil:
			if p.running.Err() == nil {
				p.log.Error("the workflow cannot be run", "workflow", job.Workflow, "for", job.Origin, "error", err)
			}
			return
		case res.State == workflow.Held:
			if p.holds.free(ctx) != nil {
				return
			}
			job.ID = res.ID
			continue
		case res.State != workflow.Pending:
			p.log.Info("workflow ended", "workflow", job.Workflow, "for", job.Origin, "state", res.State, "why", res.Why)
			return
		}
		job.ID = res.ID
		if p.jobs.Ready(ctx, job.ID) != nil {
			return
		}
	}
}
