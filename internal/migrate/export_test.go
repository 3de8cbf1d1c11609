package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Known reports whether the table has a setting.
func Known(path string) bool {
	_, ok := ruleOf(path)
	return ok
}

// Lossy reports whether a setting has to be named, because it becomes nothing.
func Lossy(path string) bool {
	r, _ := ruleOf(path)
	return r.to == ""
}

// Rows are the table of settings as Markdown.
func Rows() string {
	var b strings.Builder
	b.WriteString("| consul-template | jorc |\n|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(table)) {
		r := table[path]
		text := string(r.kind) + ": " + r.reason
		if r.to != "" {
			text = "`" + r.to + "`"
			if r.reason != "" {
				text += ": " + r.reason
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", path, text)
	}
	return b.String()
}
