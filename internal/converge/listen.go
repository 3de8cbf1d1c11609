package converge

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/jorc/jorc/internal/concurrency"
)

// listen follows what drives the converger. A source that ends is asked again.
func (c *Converger) listen(ctx context.Context, g *errgroup.Group) {
	c.input(func(in *inputs) {
		in.holdKnown = c.o.Holds == nil
		in.checksKnown = c.o.Checks == nil
	})
	g.Go(func() error {
		return c.follow(ctx, "desired version", func(ctx context.Context) error { return c.o.Ledger.WatchDesired(ctx, c.heardDesired) })
	})
	if c.o.Holds != nil {
		g.Go(func() error {
			return c.follow(ctx, "holds", func(ctx context.Context) error { return c.o.Holds.Watch(ctx, c.heardHold) })
		})
	}
	if c.o.Checks != nil {
		g.Go(func() error {
			return c.follow(ctx, "health checks", func(ctx context.Context) error { return c.o.Checks.Watch(ctx, c.heardChecks) })
		})
	}
}

// follow watches until ctx ends, whatever becomes of a watch.
func (c *Converger) follow(ctx context.Context, what string, watch func(context.Context) error) error {
	for {
		err := watch(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Warn("a watch ended; it is begun again", "of", what, "error", err)
		if err := concurrency.Sleep(ctx, c.timing.trouble); err != nil {
			return err
		}
	}
}

// input changes what is known and has it looked at.
func (c *Converger) input(change func(in *inputs)) {
	c.mu.Lock()
	change(&c.in)
	c.mu.Unlock()
	c.stir()
}

// heardDesired keeps the last version that could be read.
func (c *Converger) heardDesired(version string, err error) {
	c.input(func(in *inputs) {
		if err != nil {
			in.desiredErr = err.Error()
			return
		}
		in.desired, in.desiredKnown, in.desiredErr = version, true, ""
	})
}

func (c *Converger) heardHold(h Hold) {
	c.input(func(in *inputs) { in.hold, in.holdKnown = h, true })
}

func (c *Converger) heardChecks(failing []string) {
	failing = slices.Clone(failing)
	now := c.now()
	c.input(func(in *inputs) {
		switch {
		case len(failing) == 0:
			in.checksAllGood = true
		case len(in.failing) == 0:
			in.failingSince = now
			in.checksAllGood = in.checksAllGood || in.checksKnown && now.After(in.freshUntil)
		}
		in.failing, in.checksKnown = failing, true
	})
}

// freshChecks forgets how checks were before the static workflow ran. That they
// pass, as far as is known, may be of before: a check that failed while the
// workflow restarted a service is heard of when that serves again.
func (c *Converger) freshChecks() {
	now := c.now()
	c.input(func(in *inputs) {
		in.failingSince, in.checksAllGood, in.freshUntil = now, false, now.Add(c.timing.settle)
	})
}
