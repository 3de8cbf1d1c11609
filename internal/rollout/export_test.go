package rollout

// For tests only.
var (
	WindowsChange    = windowsChange
	WindowsOpenSince = windowsOpenSince
)
