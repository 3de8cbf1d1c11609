package agent

import (
	"fmt"

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
