package text

import (
	"fmt"
	"slices"
	"strings"
)

// listed is how many known names an error lists.
const listed = 10

// longest is the length in bytes up to which names are compared.
const longest = 64

// Unknown returns the end of an error about a name that does not exist: the known
// name that is close to it, and what exists. what is the plural of its kind.
func Unknown(name, what string, known []string) string {
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	text := ""
	if near := Closest(name, known); near != "" {
		text = fmt.Sprintf(", did you mean %q?", near)
	}
	if len(known) == 0 {
		return text + "; there are no " + what
	}
	return fmt.Sprintf("%s; %s: %s", text, what, Few(", ", known, listed))
}

// Closest returns the known name with the fewest edits from name, regardless of
// case, if these are few enough for a typing mistake; otherwise the only known name
// that begins with name; otherwise nothing.
func Closest(name string, known []string) string {
	if len(name) < 2 {
		return ""
	}
	name = strings.ToLower(name)
	best, least := "", max(1, min(3, len(name)/3))+1
	for _, k := range known {
		if len(k) < 2 {
			continue
		}
		if d := edits(name, strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return best
	}
	begins := func(k string) bool { return strings.HasPrefix(strings.ToLower(k), name) }
	if i := slices.IndexFunc(known, begins); i >= 0 && !slices.ContainsFunc(known[i+1:], begins) {
		return known[i]
	}
	return ""
}

// edits counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b.
func edits(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return longest
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
