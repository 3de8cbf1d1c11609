package text

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"
)

// Diff is a unified diff of two contents, as patch(1) accepts it; empty: they are equal. heading
// returns what stands behind the numbers of a hunk, which lines of new differ from first to last,
// from 1; nil: nothing.
func Diff(from, to string, old, new []byte, heading func(changed []int) string) string {
	if string(old) == string(new) {
		return ""
	}
	if !utf8.Valid(old) || !utf8.Valid(new) {
		return fmt.Sprintf("Binary files %s and the new content differ\n", to)
	}
	a, b := diffLines(old), diffLines(new)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, to)
	for _, hunk := range difflib.NewMatcher(a, b).GetGroupedOpCodes(3) {
		first, last := hunk[0], hunk[len(hunk)-1]
		fmt.Fprintf(&out, "@@ -%s +%s @@", diffRange(first.I1, last.I2), diffRange(first.J1, last.J2))
		if heading != nil {
			var changed []int
			for _, op := range hunk {
				if op.Tag == 'd' { // what is written in its place
					changed = append(changed, min(op.J1+1, len(b)))
				}
				for line := op.J1; op.Tag != 'e' && line < op.J2; line++ {
					changed = append(changed, line+1)
				}
			}
			if text := heading(changed); text != "" {
				out.WriteString(" " + text)
			}
		}
		out.WriteByte('\n')
		for _, op := range hunk {
			if op.Tag == 'e' {
				prefixed(&out, " ", a[op.I1:op.I2])
				continue
			}
			prefixed(&out, "-", a[op.I1:op.I2])
			prefixed(&out, "+", b[op.J1:op.J2])
		}
	}
	return out.String()
}

func prefixed(out *strings.Builder, prefix string, lines []string) {
	for _, line := range lines {
		out.WriteString(prefix + line)
	}
}

// diffRange is where lines are, as in a unified diff.
func diffRange(start, end int) string {
	switch n := end - start; n {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	default:
		return fmt.Sprintf("%d,%d", start+1, n)
	}
}

// diffLines splits data. A last line without a newline differs from one with it.
func diffLines(data []byte) []string {
	list := strings.SplitAfter(string(data), "\n")
	last := len(list) - 1
	if list[last] == "" {
		return list[:last]
	}
	list[last] += "\n\\ No newline at end of file\n"
	return list
}
