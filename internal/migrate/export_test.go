package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Known reports whether the table has a setting.
func Known(path string) bool {
	_, ok := consulTemplate.rule(path)
	return ok
}

// Lossy reports whether a setting has to be named, because it becomes nothing.
func Lossy(path string) bool {
	r, _ := consulTemplate.rule(path)
	return r.to == ""
}

// Rows are the table of a tool's settings as Markdown.
func Rows(name string) string {
	t := map[string]*tool{"consul-template": consulTemplate, "envconsul": envconsul}[name]
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | jorc |\n|---|---|\n", name)
	for _, path := range slices.Sorted(maps.Keys(t.rules())) {
		r := t.rules()[path]
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

// Quote writes a string.
func Quote(s string) string { return quote(s) }
