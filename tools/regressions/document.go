package main

import (
	"fmt"
	"strings"
)

// document is the result of all patches as Markdown. What was not tried now has its row of before.
func document(faults []fault, results []result, before string) string {
	var b strings.Builder
	b.WriteString(`# Regressions

Each fault in this table was found once and repaired, unless its row says that it never was one. The patch ` + "`regressions/NAME.patch`" + ` puts it back, and the test beside it
fails. ` + "`make test-regressions`" + ` tries all patches in a copy of the tree and writes this document. ` + "`make lint`" + ` checks that each patch
still applies and that its test exists. CONTRIBUTING.md says how to add a patch.

| fault | what was wrong | what an operator saw | shown by | test | with the fault |
|---|---|---|---|---|---|
`)
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	tried := map[string]result{}
	for _, r := range results {
		tried[r.fault.name] = r
	}
	proven := 0
	for _, f := range faults {
		with := withBefore(f.name, before)
		if r, ok := tried[f.name]; ok {
			if with = string(r.with); !r.proven() {
				with = notProvenMark + fmt.Sprintf(": %s without, %s with the fault", r.without, r.with)
			}
		}
		if !strings.HasPrefix(with, notProvenMark) {
			proven++
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | %s |\n", f.name, cell(f.wrong), cell(f.seen), cell(f.found), f.test, with)
	}
	fmt.Fprintf(&b, "\n%d of %d faults are proven.\n", proven, len(faults))
	return b.String()
}

const notProvenMark = "**not proven**"

// withBefore is what the document of before says of the test with the fault.
func withBefore(name, before string) string {
	for line := range strings.Lines(before) {
		if strings.HasPrefix(line, "| "+name+" |") {
			cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), " |"), " | ")
			return cells[len(cells)-1]
		}
	}
	return notProvenMark + ": not tried"
}
