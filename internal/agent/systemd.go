package agent

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// reloading is what sd_notify(3) asks for at the start of a reload: the state
// and the time on the monotonic clock.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

// watchdog tells the service manager that all is well, twice as often as it
// asks for, as long as the engine's loop answers.
func (a *Agent) watchdog(ctx context.Context) error {
	if a.o.Watchdog <= 0 {
		return nil
	}
	tick := time.NewTicker(a.o.Watchdog / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if a.alive(ctx) {
			a.o.Notify("WATCHDOG=1")
		}
	}
}

// alive tells whether the engine's loop answers. An engine that is being
// exchanged is given until the next time.
func (a *Agent) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, a.o.Watchdog/4)
	defer cancel()
	if err := a.generation().engine.Ping(ctx); err != nil {
		a.o.Log.Error("the template engine does not answer", "error", err)
		return false
	}
	return true
}
