package durable

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is how long this boot lasts, with the time in suspension; 0: not known.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
