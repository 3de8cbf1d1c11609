// Package raced says whether tests run with the race detector. Random histories of a planner have one goroutine, in
// which it finds nothing, and take five times as long with it: make test goes through all of them without it.
package raced

// Histories returns how many of all histories a test goes through.
func Histories(all uint64) uint64 {
	if Enabled {
		return max(1, all/6)
	}
	return all
}
