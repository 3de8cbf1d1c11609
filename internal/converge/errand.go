package converge

import (
	"context"
	"slices"

	"github.com/jorc/jorc/internal/concurrency"
)

// errand is something that goes on beside the loop for as long as decisions
// ask for it.
type errand struct {
	about  string
	cancel context.CancelFunc
	done   chan struct{}
}

// keepErrands has exactly those errands under way that d asks for.
func (c *Converger) keepErrands(ctx context.Context, d decision) {
	if c.o.Admission != nil {
		c.o.Admission.Cannot(d.cannot)
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
		if err := c.o.Admission.Enter(ctx, d.enter, c.heardWaiting); err != nil {
			return err
		}
		c.input(func(in *inputs) { in.admitted, in.waiting = d.enter, "" })
		return nil
	})
	c.keep(ctx, "ready", d.ready, func(ctx context.Context) error {
		if err := c.o.Runner.Ready(ctx, d.ready); err != nil {
			return err
		}
		c.input(func(in *inputs) { in.ready = d.ready })
		return nil
	})
	require := ""
	if d.require {
		require = "requirements"
	}
	c.keep(ctx, "require", require, func(ctx context.Context) error {
		return c.o.Requirements.Watch(ctx, c.o.Requires, c.heardMissing)
	})
	cycle := ""
	if d.cycle {
		cycle = "cycle"
	}
	c.keep(ctx, "cycle", cycle, c.watchCycle)
}

// keep has the errand of a kind under way if about says about what.
func (c *Converger) keep(ctx context.Context, kind, about string, do func(context.Context) error) {
	if e := c.errands[kind]; e != nil {
		if e.about == about {
			return
		}
		e.cancel()
		<-e.done
		delete(c.errands, kind)
		c.unlearn(kind)
	}
	if about == "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &errand{about: about, cancel: cancel, done: make(chan struct{})}
	c.errands[kind] = e
	go func() {
		defer close(e.done)
		c.run1(ctx, kind, do)
	}()
}

// run1 does an errand until that succeeds or ctx ends.
func (c *Converger) run1(ctx context.Context, kind string, do func(context.Context) error) {
	for wait := c.timing.trouble; ; wait = min(2*wait, c.timing.maxTrouble) {
		c.hook(kind)
		err := do(ctx)
		if ctx.Err() != nil || err == nil {
			c.input(func(in *inputs) { in.errandErr = "" })
			return
		}
		c.log.Warn("it is tried again", "what", kind, "error", err)
		c.input(func(in *inputs) { in.errandErr = kind + ": " + err.Error() })
		if concurrency.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// unlearn drops what an errand found that is not under way any more.
func (c *Converger) unlearn(kind string) {
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
	case "ready":
		c.in.ready = ""
	}
}

// endErrands ends all of them and waits for their ends.
func (c *Converger) endErrands() {
	for _, e := range c.errands {
		e.cancel()
	}
	for _, e := range c.errands {
		<-e.done
	}
}

func (c *Converger) heardMissing(missing []Missing) {
	missing = slices.Clone(missing)
	c.input(func(in *inputs) { in.missing, in.missingKnown = missing, true })
}

func (c *Converger) heardWaiting(reason string) {
	c.input(func(in *inputs) { in.waiting = reason })
}

// watchCycle looks for a cycle again and again, less and less often: it reads
// what all members require.
func (c *Converger) watchCycle(ctx context.Context) error {
	for wait := 2 * c.timing.cycle; ; wait = min(2*wait, 60*c.timing.cycle) {
		cycle, err := c.o.Cycle(ctx)
		if err != nil {
			return err
		}
		c.input(func(in *inputs) { in.cycle = cycle })
		if len(cycle) > 0 {
			wait = 2 * c.timing.cycle // it is told when it goes away
		}
		if err := concurrency.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
