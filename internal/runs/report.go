package runs

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/kv"
	"github.com/jorc/jorc/internal/workflow"
)

// Bounds of what a node reports, in bytes.
const (
	maxTail = 4 << 10
	maxWhy  = 1 << 10
)

// between is asked before each task. Before the first it tells that the job has
// begun: so a job of which Consul does not know that has run nothing. Of a job on
// a manager it tells each time what is done, and goes on only when this node is
// still the one to do it.
func (p *performance) between(ctx context.Context, e Queued) error {
	if err := p.asked(); err != nil {
		return err
	}
	if p.begun && !e.Manager {
		return nil
	}
	var finished []string
	if e.Manager {
		res, err := p.r.Job(e.Job)
		if err != nil {
			return err
		}
		finished = done(res)
	}
	p.w.hook("begin")
	err := p.update(ctx, func(q *Queued) {
		q.State, q.Done = Running, finished
		if q.Started.IsZero() {
			q.Started = stamp()
		}
	})
	p.w.hook("begun")
	p.begun = p.begun || err == nil
	return err
}

func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// tell reports the end of the job. That it is asked for no more is no error.
func (p *performance) tell(ctx context.Context, end Queued) error {
	p.w.hook("tell")
	err := p.update(ctx, func(q *Queued) {
		q.State, q.Task, q.ExitCode, q.LogURL = end.State, end.Task, end.ExitCode, end.LogURL
		q.Why, q.Tail, q.Ended = clip(end.Why, maxWhy), clip(end.Tail, maxTail), stamp()
		if q.Manager {
			q.Done = end.Done
		}
		if q.Started.IsZero() && end.State == Done {
			q.Started = q.Ended
		}
	})
	p.w.hook("told")
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// update changes the job's entry in the queue, however long that takes. It
// returns errGone when there is none, or ctx's error.
func (p *performance) update(ctx context.Context, change func(*Queued)) error {
	for wait := p.w.retry; ; wait = min(2*wait, time.Minute) {
		err := p.updateOnce(ctx, change)
		switch {
		case err == nil, errors.Is(err, errGone):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		p.log.Warn("Consul cannot be told yet how far the run is", "job", p.job, "error", err)
		if err := concurrency.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// updateOnce is update that gives up when Consul does not take it.
func (p *performance) updateOnce(ctx context.Context, change func(*Queued)) error {
	e, err := p.w.queue.Update(ctx, func(old kv.Entry[Queue]) (Queue, bool, error) {
		q := old.Value.clone()
		i := q.find(p.job)
		if i < 0 {
			return q, false, errGone
		}
		change(&q.Jobs[i])
		return q, true, nil
	})
	if err == nil {
		p.w.learn(e.Value)
	}
	return err
}

// report is what a job came to.
func report(res workflow.Result) Queued {
	q := Queued{State: Failed, Why: res.Why, Task: res.Task, ExitCode: res.ExitCode, Tail: res.Tail, LogURL: res.LogURL, Done: done(res)}
	switch {
	case res.State == workflow.Success, res.State == workflow.Stopped && res.Task != "": // a task said that there is nothing left to do
		q.State = Done
	case res.State == workflow.Stopped:
		q.State = Cancelled
	}
	if q.Why == "" && q.State == Failed {
		q.Why = string(res.State)
	}
	return q
}

// done are the tasks that need not be run elsewhere.
func done(res workflow.Result) []string {
	var names []string
	for _, t := range res.Tasks {
		if t.State == workflow.TaskSuccess || t.State == workflow.TaskSkipped {
			names = append(names, t.Name)
		}
	}
	return names
}

// clip keeps the last n bytes of a text, or fewer, in whole characters and
// lines where there are any.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		s = s[i+1:]
	}
	return s
}
