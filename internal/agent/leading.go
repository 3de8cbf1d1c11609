package agent

import (
	"context"
	"errors"
	"time"

	"github.com/jorc/jorc/internal/workflow"
)

// Reasons for which such a workflow ends between two tasks.
var (
	errNotLeading    = errors.New("this member no longer leads")
	errStepDownIsDue = errors.New("another member takes the place of this one now")
)

// stepDownWithin bounds the workflow of a former leader: after
// cluster.Timing.StepDown another takes its place anyway.
const stepDownWithin = time.Minute

// lead runs on_lead when this member begins to lead, and on_step_down when it
// ceases to: ctx ends then. The place is given to nobody else before that
// workflow has ended, or the time for stepping down has run out.
func (p *part) lead(ctx context.Context) {
	p.log.Info("this member leads now", "cluster", p.cluster.Name())
	if name := p.conf.Member.OnLead; name != "" {
		p.runLeading(ctx, errNotLeading, workflow.Job{Workflow: name, Origin: "leading cluster " + p.cluster.Name()})
	}
	<-ctx.Done()
	if p.running.Err() != nil {
		return // the agent ends, or has a new configuration; the place stays this member's
	}
	p.log.Info("this member no longer leads", "cluster", p.cluster.Name())
	if name := p.conf.Member.OnStepDown; name != "" {
		down, cancel := context.WithTimeout(p.running, stepDownWithin)
		defer cancel()
		p.runLeading(down, errStepDownIsDue, workflow.Job{Workflow: name, Origin: "no longer leading cluster " + p.cluster.Name()})
	}
}

// runLeading runs a job to its end; one that failed stays so. It ends early, for
// why, when ctx does.
func (p *part) runLeading(ctx context.Context, why error, job workflow.Job) {
	res, err := p.jobs.Drive(p.running, job, workflow.Hooks{Watch: func(watching context.Context, stop func(error)) {
		select {
		case <-ctx.Done():
			stop(why)
		case <-watching.Done():
		}
	}})
	switch {
	case p.running.Err() != nil:
	case errors.Is(err, why):
		p.log.Info("workflow ended early", "workflow", job.Workflow, "for", job.Origin, "why", err)
	case err != nil:
		p.log.Error("cannot run the workflow", "workflow", job.Workflow, "for", job.Origin, "error", err)
	default:
		p.log.Info("workflow ended", "workflow", job.Workflow, "for", job.Origin, "state", res.State, "why", res.Why)
	}
}
