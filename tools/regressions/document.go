package main

import (
	"fmt"
	"strings"
)

// document is the result of all patches as Markdown.
func document(results []result) string {
	var b strings.Builder
	b.WriteString(`# Regressions

Each fault in this table was found once, and repaired. The patch ` + "`regressions/NAME.patch`" + ` puts it back, and the test beside it
fails. ` + "`make test-regressions`" + ` tries all patches in a copy of the tree and writes this document. ` + "`make lint`" + ` checks that each patch
still applies and that its test exists. CONTRIBUTING.md says how to add a patch.

| fault | what was wrong | what an operator saw | found by | test | with the fault |
|---|---|---|---|---|---|
`)
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	proven := 0
	for _, r := range results {
		with := string(r.with)
		if r.proven() {
			proven++
		} else {
			with = fmt.Sprintf("**not proven**: %s without, %s with the fault", r.without, r.with)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | %s |\n", r.fault.name, cell(r.fault.wrong), cell(r.fault.seen), cell(r.fault.found), r.fault.test, with)
	}
	fmt.Fprintf(&b, "\n%d of %d faults are proven.\n", proven, len(results))
	return b.String()
}
