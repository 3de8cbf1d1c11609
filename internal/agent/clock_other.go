//go:build !linux

package agent

// monotonic returns 0: only systemd asks for this clock.
func monotonic() int64 { return 0 }
