package text

import "strconv"

// Count returns a number with what it counts: one is for 1 ("member is"), many for all others.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
