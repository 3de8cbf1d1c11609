package agent

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"
)

// diff prints unified diffs that patch(1) accepts.
func (c *comparer) diff(out io.Writer) bool {
	for _, f := range c.sorted() {
		from := f.file.Destination
		if f.current == nil {
			from = "/dev/null"
		}
		if !utf8.Valid(f.current) || !utf8.Valid(f.file.Data) {
			fmt.Fprintf(out, "Binary files %s and the new content differ\n", f.file.Destination)
			continue
		}
		// The caller notices errors of its writer at the next write.
		_ = difflib.WriteUnifiedDiff(out, difflib.UnifiedDiff{
			A: lines(f.current), B: lines(f.file.Data),
			FromFile: from, ToFile: f.file.Destination, Context: 3,
		})
	}
	return len(c.changed) > 0
}

// lines splits data. A last line without a newline differs from one with it.
func lines(data []byte) []string {
	list := strings.SplitAfter(string(data), "\n")
	last := len(list) - 1
	if list[last] == "" {
		return list[:last]
	}
	list[last] += "\n\\ No newline at end of file\n"
	return list
}
