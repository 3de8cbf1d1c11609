// Command rerun reads what gotestsum recorded of 'go test -json', prints the tests that failed and
// passed when they were run again, and fails for what a second run does not repair: a package
// that failed beside its tests, or ended before them.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rerun EVENTS REPORT: read the file EVENTS, add to the file REPORT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "rerun:", err)
		os.Exit(1)
	}
}

func run(events, report string) error {
	in, err := os.Open(events)
	if err != nil {
		return err
	}
	defer in.Close()
	text, err := read(in)
	out, openerr := os.OpenFile(report, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if openerr != nil {
		return errors.Join(err, openerr)
	}
	_, writeerr := io.WriteString(out, text)
	return errors.Join(err, writeerr, out.Close())
}

// event is a line of 'go test -json'.
type event struct {
	Action, Package, Test, Output string
}

// attempts is what is known of a test; its subtests are part of it.
type attempts struct {
	name          string // with its package
	runs, failed  int
	output, first strings.Builder // of the current run; of the first one that failed
	running       bool
}

// read returns the text about the tests that failed and passed later.
func read(in io.Reader) (string, error) {
	var (
		tests []*attempts
		known = map[[2]string]*attempts{}
		fails = map[string]int{} // tests of a package that failed in its current run
		errs  []error
	)
	for lines := json.NewDecoder(bufio.NewReader(in)); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("read the events of go test: %w", err)
		}
		if e.Test == "" {
			if e.Action == "start" {
				fails[e.Package] = 0
			}
			if e.Action == "fail" {
				if fails[e.Package] == 0 {
					errs = append(errs, fmt.Errorf("%s failed, but none of its tests", e.Package))
				}
				for _, t := range tests {
					if t.running && strings.HasPrefix(t.name, e.Package+".") {
						errs = append(errs, fmt.Errorf("%s ended before %s did: tests after it may not have run", e.Package, t.name))
						t.running = false
					}
				}
			}
			continue
		}
		root, _, sub := strings.Cut(e.Test, "/")
		t := known[[2]string{e.Package, root}]
		if t == nil {
			t = &attempts{name: e.Package + "." + root}
			known[[2]string{e.Package, root}] = t
			tests = append(tests, t)
		}
		if e.Action == "output" {
			t.output.WriteString(e.Output)
		}
		if sub {
			continue
		}
		switch e.Action {
		case "run":
			t.runs++
			t.running = true
			t.output.Reset()
		case "pass", "skip", "fail":
			t.running = false
			if e.Action == "fail" {
				fails[e.Package]++
				if t.failed++; t.failed == 1 {
					t.first.WriteString(t.output.String())
				}
			}
		}
	}
	var text strings.Builder
	for _, t := range tests {
		if t.failed > 0 && t.failed < t.runs {
			fmt.Fprintf(&text, "%s: %d of %d runs failed, the first with\n%s", t.name, t.failed, t.runs, shortened(t.first.String()))
		}
	}
	return text.String(), errors.Join(errs...)
}

// mostLines of the output of one test are printed.
const mostLines = 200

// shortened returns indented lines of the text, without those in the middle of a long one.
func shortened(text string) string {
	lines := slices.Collect(strings.Lines(text))
	if left := len(lines) - mostLines; left > 0 {
		lines = slices.Concat(lines[:mostLines/2], []string{fmt.Sprintf("… %d lines left out\n", left)}, lines[len(lines)-mostLines/2:])
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}
