package runs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/workflow"
)

// tellWait bounds how long a job that waits tries to say so.
const tellWait = 10 * time.Second

// await returns when a job that waits for something may go on, as wait says.
// What it waits for is told first, and that it waits no more, so that nobody has
// to ask the node: two writes, however long it takes. A job goes on whether
// Consul takes them or not.
func (p *performance) await(ctx context.Context, res workflow.Result, wait func(context.Context) error) error {
	if !p.waits {
		p.waits = p.mention(ctx, clip(strings.TrimPrefix(res.Why, "held: "), maxWhy), res.Task) // by whom, says the rest
	}
	if err := wait(ctx); err != nil {
		return err
	}
	if p.waits && !notYet(res) {
		p.waits = !p.mention(ctx, "", "")
	}
	return nil
}

// mention says what the job waits for, if Consul is there.
func (p *performance) mention(ctx context.Context, why, task string) bool {
	ctx, cancel := context.WithTimeout(ctx, tellWait)
	defer cancel()
	err := p.updateOnce(ctx, func(q *Queued) { q.Why, q.Task = why, task })
	if err != nil {
		p.log.Warn("Consul cannot be told what the run waits for", "job", p.job, "error", err)
	}
	return err == nil
}

// notYet tells whether it was the task itself that said that it has to wait: it
// is asked again and again, and what it said is told once.
func notYet(res workflow.Result) bool {
	return res.State == workflow.Pending && slices.ContainsFunc(res.Tasks, func(t workflow.TaskStatus) bool { return t.Name == res.Task && t.Deferrals > 0 })
}
