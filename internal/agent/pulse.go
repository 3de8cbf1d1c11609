package agent

import (
	"context"
	"fmt"
	"time"
)

// pulseEvery is how often the engine's loop is asked for a sign of life when
// the service manager does not say how often it wants to hear of one.
const pulseEvery = 20 * time.Second

// feelPulse asks the engine's loop for a sign of life, twice as often as the
// service manager wants to hear of it, passes it on, and remembers when there
// is none.
func (a *Agent) feelPulse(ctx context.Context) error {
	every := pulseEvery
	if a.o.Watchdog > 0 {
		every = a.o.Watchdog
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := a.alive(ctx, every/4)
		if ctx.Err() != nil {
			return nil
		}
		a.setUnhealthy(err)
		if err == nil && a.o.Watchdog > 0 {
			a.o.Notify("WATCHDOG=1")
		}
	}
}

// alive returns nil when the engine's loop has answered, or has not begun: what
// a crash left is made good first, by commands with timeouts of their own, and
// a former engine may still wait for its commands to end.
func (a *Agent) alive(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	g := a.generation()
	if err := g.engine.Ping(ctx); err != nil && g.looping.Load() {
		return fmt.Errorf("the template engine does not answer: %w", err)
	}
	return nil
}

func (a *Agent) setUnhealthy(err error) {
	a.mu.Lock()
	changed := (err == nil) != (a.unhealthy == "")
	a.unhealthy = ""
	if err != nil {
		a.unhealthy = err.Error()
	}
	a.mu.Unlock()
	switch {
	case changed && err != nil:
		a.o.Log.Error("not alive", "error", err)
	case changed:
		a.o.Log.Info("alive again")
	}
}
