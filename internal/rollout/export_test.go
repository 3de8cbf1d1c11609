package rollout

import "time"

// For tests only.
var (
	Begin            = func(version string, p Policy, now time.Time) Document { return begin(version, p, "", "", now) }
	WindowsChange    = windowsChange
	WindowsOpenSince = windowsOpenSince
)
