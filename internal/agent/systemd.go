package agent

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// reloading returns the message that sd_notify(3) requires at the start of a reload:
// the state and the time on the monotonic clock.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

// watchdogEvery is how often the engine's loop is checked if the service manager
// sets no watchdog interval.
const watchdogEvery = 20 * time.Second

// watchdog checks the engine's loop twice in each watchdog interval, notifies the
// service manager if it answers, and records it if not.
func (a *Agent) watchdog(ctx context.Context) error {
	every := watchdogEvery
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

// alive returns nil when the engine's loop has answered or does not run. It does not
// run yet while interrupted replacements are repaired, by commands with their own
// timeouts, and no longer while the engine waits for its last commands to end.
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
