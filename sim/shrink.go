package sim

import "slices"

// Shrink returns a short part of all, in the same order, for which fails still returns true: without any one of what is
// left it returned false. It leaves out halves first, then ever smaller pieces. fails(all) is true.
func Shrink[T any](all []T, fails func([]T) bool) []T {
	for size := (len(all) + 1) / 2; size > 0; {
		found := false
		for from := 0; from < len(all); {
			rest := slices.Concat(all[:from], all[min(from+size, len(all)):])
			if fails(rest) {
				all, found = rest, true
			} else {
				from += size
			}
		}
		if size > 1 {
			size = (size + 1) / 2
		} else if !found {
			break
		}
	}
	return all
}
