package converge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/concurrency"
	"github.com/jorc/jorc/internal/config"
)

// task is something that runs beside the loop for as long as decisions
// ask for it.
type task struct {
	about  string
	cancel context.CancelFunc
	done   chan struct{}
}

// keepTasks has exactly the tasks running that d asks for.
func (c *Converger) keepTasks(ctx context.Context, d decision) {
	if c.o.Admission != nil {
		c.o.Admission.Blocked(d.blocked)
	}
	// Enter and Leave never overlap: the one that is not asked for ends first.
	if d.enter == "" {
		c.keep(ctx, "enter", "", nil)
	}
	c.keep(ctx, "leave", d.leave, func(ctx context.Context) error {
		if err := c.o.Admission.Leave(ctx, d.leave); err != nil {
			return err
		}
		c.input(func(in *inputs) { in.left = d.leave })
		return nil
	})
	c.keep(ctx, "enter", d.enter, func(ctx context.Context) error {
		if err := c.o.Admission.Enter(ctx, d.enter, c.setWaiting); err != nil {
			return err
		}
		c.input(func(in *inputs) { in.admitted, in.waiting = d.enter, "" })
		return nil
	})
	require := ""
	if d.require {
		require = "requirements"
	}
	c.keep(ctx, "require", require, func(ctx context.Context) error {
		return c.o.Requirements.Watch(ctx, c.o.Requires, c.setMissing)
	})
	cycle := ""
	if d.cycle {
		cycle = "cycle"
	}
	c.keep(ctx, "cycle", cycle, c.watchCycle)
}

// keep has the task of a kind running for about; empty: it does not run.
func (c *Converger) keep(ctx context.Context, kind, about string, do func(context.Context) error) {
	if e := c.tasks[kind]; e != nil {
		if e.about == about {
			return
		}
		e.cancel()
		<-e.done
		delete(c.tasks, kind)
		c.forgetResult(kind)
	}
	if about == "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &task{about: about, cancel: cancel, done: make(chan struct{})}
	c.tasks[kind] = e
	go func() {
		defer close(e.done)
		c.runTask(ctx, kind, do)
	}()
}

// runTask runs a task until that succeeds or ctx ends.
func (c *Converger) runTask(ctx context.Context, kind string, do func(context.Context) error) {
	backoff := concurrency.NewBackoff(c.timing.trouble, c.timing.maxTrouble)
	for {
		c.hook(kind)
		err := do(ctx)
		if ctx.Err() != nil || err == nil {
			c.input(func(in *inputs) { in.taskErr = "" })
			return
		}
		c.log.Warn("a task of the convergence failed, will retry", "task", kind, "error", err)
		c.input(func(in *inputs) { in.taskErr = kind + ": " + err.Error() })
		if backoff.Wait(ctx) != nil {
			return
		}
	}
}

// forgetResult drops what a task found that no longer runs.
func (c *Converger) forgetResult(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case "require":
		c.in.missing, c.in.missingKnown = nil, false
	case "cycle":
		c.in.cycle = nil
	case "enter":
		c.in.admitted, c.in.waiting = "", ""
	case "leave":
		c.in.left = ""
	}
}

// endTasks ends all of them and waits for their ends.
func (c *Converger) endTasks() {
	for _, e := range c.tasks {
		e.cancel()
	}
	for _, e := range c.tasks {
		<-e.done
	}
}

func (c *Converger) setMissing(missing []Missing) {
	missing = slices.Clone(missing)
	c.input(func(in *inputs) { in.missing, in.missingKnown = missing, true })
}

func (c *Converger) setWaiting(reason string) {
	c.input(func(in *inputs) { in.waiting = reason })
}

// watchCycle looks for a cycle again and again, less and less often: it reads
// what all members require.
func (c *Converger) watchCycle(ctx context.Context) error {
	backoff := concurrency.NewBackoff(2*c.timing.cycle, 60*c.timing.cycle)
	for {
		cycle, err := c.o.Cycle(ctx)
		if err != nil {
			return err
		}
		c.input(func(in *inputs) { in.cycle = cycle })
		if len(cycle) > 0 {
			backoff.Reset() // its end is noticed soon
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// Missing is a requirement that is not there.
type Missing struct {
	Target string `json:"target"`
	Have   int    `json:"have"`
	Want   int    `json:"want"`
	For    string `json:"for"`
	Why    string `json:"why"`
}

// String is "mysql: 0 of 1 functional".
func (m Missing) String() string {
	return fmt.Sprintf("%s: %d of %d %s", m.Target, m.Have, m.Want, m.For)
}

// waitingFor is one line about all that is missing.
func waitingFor(missing []Missing) string {
	parts := make([]string, len(missing))
	for i, m := range missing {
		parts[i] = m.String()
	}
	return "waiting for " + strings.Join(parts, "; ")
}

// targets identifies a set of missing targets, whatever their numbers.
func targets(missing []Missing) string {
	parts := make([]string, len(missing))
	for i, m := range missing {
		parts[i] = m.Target + " " + m.For
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// FromBlocker returns Requirements that b watches.
func FromBlocker(b *blocker.Blocker) Requirements { return services{b} }

type services struct{ blocker *blocker.Blocker }

// Watch says nothing before Consul has answered about all that is required.
func (s services) Watch(ctx context.Context, r []config.Requires, handle func([]Missing)) error {
	needs, err := blocker.NeedsOf(r)
	if err != nil {
		return err
	}
	return s.blocker.Watch(ctx, needs, blocker.Options{}, func(states []blocker.State) {
		var missing []Missing
		for _, s := range states {
			if !s.Answered && !s.Denied {
				return
			}
			if !s.Satisfied {
				n := s.Need
				missing = append(missing, Missing{Target: n.Target.Ident(), Have: s.Have, Want: n.Target.Count, For: n.For.String(), Why: s.Why})
			}
		}
		handle(missing)
	})
}
