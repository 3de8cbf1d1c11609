package agent

import (
	"context"
	"sync"

	"github.com/jorc/jorc/internal/workflow"
)

// jobs runs the workflows of one configuration for all components of a host,
// and lets a reload wait for a moment between two tasks.
type jobs struct {
	*workflow.Runner

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed while none runs
	yield   string        // why no further task may begin
}

func newJobs(o workflow.Options) *jobs {
	j := &jobs{idle: make(chan struct{})}
	close(j.idle)
	held := o.Held
	o.Held = func() string {
		j.mu.Lock()
		yield := j.yield
		j.mu.Unlock()
		if yield != "" || held == nil {
			return yield
		}
		return held()
	}
	j.Runner = workflow.New(o)
	return j
}

// Run is that of workflow.Runner.
func (j *jobs) Run(ctx context.Context, job workflow.Job) (workflow.Result, error) {
	j.mu.Lock()
	if j.running++; j.running == 1 {
		j.idle = make(chan struct{})
	}
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.running--; j.running == 0 {
			close(j.idle)
		}
	}()
	return j.Runner.Run(ctx, job)
}

// stop keeps further tasks from beginning and returns when none runs any more,
// or ctx has ended. Jobs that were under way are open, and go on elsewhere.
func (j *jobs) stop(ctx context.Context, why string) {
	j.mu.Lock()
	j.yield = why
	idle := j.idle
	j.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
