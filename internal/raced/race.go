//go:build race

package raced

// Enabled: the race detector is there.
const Enabled = true
