package slots

import (
	"maps"
	"slices"
)

// move is what happens to one claim between two values of a group, and so to
// its keys.
type move int

const (
	queued   move = iota // it waits now
	admitted             // it holds a slot now, and waited before
	entered              // it holds a slot now, and was not there before
	dropped              // it waits no more, and has no slot
	released             // it had a slot, and has none now
)

// moves compares two values of a group.
func moves(old, next Group) map[string]move {
	all := map[string]move{}
	waited, waits := set(old.Queue), set(next.Queue)
	for name := range waits {
		if !waited[name] {
			all[name] = queued
		}
	}
	for name := range waited {
		if !waits[name] && !next.Holds(name) {
			all[name] = dropped
		}
	}
	for name := range next.Holders {
		switch {
		case old.Holds(name):
		case waited[name]:
			all[name] = admitted
		default:
			all[name] = entered
		}
	}
	for name := range old.Holders {
		if !next.Holds(name) && !waits[name] {
			all[name] = released
		}
	}
	return all
}

func set(names []string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[name] = true
	}
	return all
}

// inOrder returns the names of m in order, so that transactions are alike.
func inOrder(m map[string]move) []string { return slices.Sorted(maps.Keys(m)) }
