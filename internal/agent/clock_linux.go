package agent

import "golang.org/x/sys/unix"

// monotonic returns the time of the monotonic clock, in µs; 0 if it cannot be read.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return now.Nano() / 1000
}
