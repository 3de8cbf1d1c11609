package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/workflow"
)

// Reasons for which a job is to go no further.
var (
	errCancelled = errors.New("cancelled")
	errGone      = errors.New("it was taken out of this node's queue")
)

// performance is one job of the queue under way.
type performance struct {
	w   *Worker
	r   Runner
	job string // its ID
	log hclog.Logger

	begun bool // Consul knows
	waits bool // Consul is told what the job waits for
}

// perform brings a job to its end and tells it. It returns an error only when
// ctx has ended first.
func (p *performance) perform(ctx context.Context, e Queued) error {
	p.begun, p.waits = e.State == Running, e.Why != ""
	_, err := p.r.Job(e.Job)
	here := err == nil
	if errors.Is(err, workflow.ErrNoJob) && p.begun {
		// Whatever of it was run: it is not run a second time.
		return p.tell(ctx, Queued{State: Failed, Why: "it had begun, and its files are not on this node any more: it is not run again"})
	}
	res, err := p.toEnd(ctx, e, here)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errGone):
		if here || p.begun {
			_, err := p.r.Abandon(ctx, e.Job, errGone.Error())
			if err != nil && !errors.Is(err, workflow.ErrNoJob) && ctx.Err() == nil {
				p.log.Warn("a job that is not asked for any more stays behind", "job", e.Job, "error", err)
			}
		}
		p.log.Info("the run is not asked for any more", "job", e.Job)
		return ctx.Err()
	case errors.Is(err, errCancelled):
		return p.tell(ctx, Queued{State: Cancelled, Why: strings.TrimPrefix(err.Error(), errCancelled.Error()+" "), Done: done(res)})
	case err != nil:
		return p.tell(ctx, Queued{State: Failed, Why: err.Error()})
	}
	return p.tell(ctx, report(res))
}

// toEnd runs the job until it has come to its end. Errors are errCancelled,
// errGone, ctx's, and what makes the job impossible on this node.
func (p *performance) toEnd(ctx context.Context, e Queued, here bool) (workflow.Result, error) {
	job := workflow.Job{ID: e.Job} // of one that is here already everything is known
	if !here {
		run, err := p.spec(ctx, e)
		if err != nil {
			return workflow.Result{}, err
		}
		job.Workflow, job.Params, job.Origin, job.Done = run.Request.Workflow, run.Request.Params, "run "+e.Run, e.Done
		if p.w.o.Version != nil {
			job.Version = p.w.o.Version()
		}
	}
	if !p.begun && p.w.o.Begin != nil {
		if err := p.whileAsked(ctx, p.w.o.Begin); err != nil {
			return workflow.Result{}, err
		}
	}
	job.Between = func(ctx context.Context) error { return p.between(ctx, e) }
	for wait := p.w.retry; ; wait = min(2*wait, time.Minute) {
		if err := p.asked(); err != nil {
			return p.abandon(ctx, e, err)
		}
		p.w.hook("run")
		res, err := p.r.Run(ctx, job)
		p.w.hook("ran")
		switch {
		case ctx.Err() != nil:
			return res, ctx.Err()
		case errors.Is(err, workflow.ErrUnknown), errors.Is(err, workflow.ErrInvalid), errors.Is(err, workflow.ErrDamaged):
			return res, err
		case err != nil: // the host is busy, or its disk is full
			p.log.Warn("the run has to wait", "error", err)
			err = p.whileAsked(ctx, func(ctx context.Context) error { return concurrency.Sleep(ctx, wait) })
		case !res.Open:
			if stop := p.asked(); stop != nil && res.State == workflow.Stopped && res.Task == "" {
				return res, stop
			}
			return res, nil
		default:
			err = p.whileAsked(ctx, func(ctx context.Context) error { return p.rest(ctx, res, wait) })
		}
		if err != nil {
			return p.abandon(ctx, e, err)
		}
	}
}

// abandon ends a job that waits.
func (p *performance) abandon(ctx context.Context, e Queued, why error) (workflow.Result, error) {
	if ctx.Err() != nil {
		return workflow.Result{}, ctx.Err()
	}
	res, err := p.r.Abandon(ctx, e.Job, why.Error())
	if errors.Is(err, workflow.ErrNoJob) {
		return workflow.Result{}, why
	}
	if err == nil && res.State != workflow.Stopped {
		return res, nil // it had come to its end
	}
	return res, why
}

// rest returns when it is worth running an open job again.
func (p *performance) rest(ctx context.Context, res workflow.Result, wait time.Duration) error {
	switch {
	case res.State == workflow.Pending:
		return p.await(ctx, res, func(ctx context.Context) error { return p.r.Ready(ctx, res.ID) })
	case res.State == workflow.Held && p.w.o.Free != nil:
		return p.await(ctx, res, p.w.o.Free)
	case res.State == workflow.Reboot:
		<-ctx.Done() // another process goes on
		return ctx.Err()
	}
	return concurrency.Sleep(ctx, wait)
}

// spec reads what is asked for, however long that takes.
func (p *performance) spec(ctx context.Context, e Queued) (Run, error) {
	for wait := p.w.retry; ; wait = min(2*wait, time.Minute) {
		if err := p.asked(); err != nil {
			return Run{}, err
		}
		doc, err := p.w.runs.spec(e.Run).Get(ctx)
		switch {
		case err == nil && doc.Exists:
			return doc.Value, nil
		case err == nil:
			return Run{}, errors.New("nothing is known of this run")
		case errors.Is(err, kv.ErrDamaged), errors.Is(err, kv.ErrNewer), ctx.Err() != nil:
			return Run{}, err
		}
		p.log.Warn("what is to be run cannot be read yet", "error", err)
		if err := p.whileAsked(ctx, func(ctx context.Context) error { return concurrency.Sleep(ctx, wait) }); err != nil {
			return Run{}, err
		}
	}
}

// asked tells whether the job is still to be run: errGone, errCancelled or nil.
func (p *performance) asked() error {
	q, _, _ := p.w.look()
	i := q.find(p.job)
	switch {
	case i < 0:
		return errGone
	case q.Jobs[i].Cancel != "":
		return fmt.Errorf("%w by %s", errCancelled, q.Jobs[i].Cancel)
	}
	return nil
}

// whileAsked waits as wait does, but no longer than the job is asked for.
func (p *performance) whileAsked(ctx context.Context, wait func(context.Context) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			_, _, changed := p.w.look()
			if err := p.asked(); err != nil {
				cancel(err)
				return
			}
			select {
			case <-inner.Done():
				return
			case <-changed:
			}
		}
	}()
	err := wait(inner)
	cancel(nil)
	<-watched
	if why := context.Cause(inner); errors.Is(why, errGone) || errors.Is(why, errCancelled) {
		return why
	}
	return err
}
