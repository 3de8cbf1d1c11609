package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcled"
)

// maxProblems is how many problems one error lists.
const maxProblems = 50

// Error is everything that is wrong with a configuration.
type Error struct {
	Problems []Problem
	More     int // problems beyond the listed ones

	causes []error
}

// Problem is one thing that is wrong and where.
type Problem struct {
	File         string // empty when the value came from a flag or the environment
	Line, Column int    // from 1; column 0: the line as a whole
	Block        string // such as `service "web"`; empty at the top of a file
	Message      string
	Excerpt      string // the line, with secrets starred out, and a mark below
}

// Error gives each problem as "file:line,column: message" with the source
// below it, one after the other, without a newline at the end.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(p.String())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// Unwrap gives the errors of files that could not be read.
func (e *Error) Unwrap() []error { return e.causes }

// String is the problem's part of the error text.
func (p Problem) String() string {
	if p.File == "" {
		return p.Message
	}
	text := fmt.Sprintf("%s:%d,%d: %s", p.File, p.Line, p.Column, p.Message)
	if p.Column == 0 {
		text = fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
	}
	if p.Block != "" {
		text += "\n  in " + p.Block
	}
	if p.Excerpt != "" {
		text += "\n" + p.Excerpt
	}
	return text
}

// err makes one error of all that was found.
func (d *decoder) err() error {
	e := &Error{causes: d.errs}
	for _, cause := range d.errs {
		e.Problems = append(e.Problems, Problem{Message: cause.Error()})
	}
	found, more := d.problems(hcl.DiagError)
	e.Problems, e.More = append(e.Problems, found...), more
	return e
}

// problems are the diagnostics of one severity in the order of the files, and
// how many there are beyond the limit.
func (d *decoder) problems(severity hcl.DiagnosticSeverity) (found []Problem, more int) {
	slices.SortStableFunc(d.diags, func(a, b *hcl.Diagnostic) int {
		return cmp.Or(cmp.Compare(d.rank(a), d.rank(b)), cmp.Compare(startByte(a), startByte(b)), cmp.Compare(a.Detail, b.Detail))
	})
	excerpts := map[string]excerpt{}
	var last string
	for _, diag := range d.diags {
		if diag.Severity != severity || diag.Error() == last {
			continue // hcl reports some of them twice
		}
		last = diag.Error()
		if len(found) == maxProblems {
			more++
			continue
		}
		found = append(found, d.problem(diag, excerpts))
	}
	return found, more
}

// rank puts what stands in no file behind the files.
func (d *decoder) rank(diag *hcl.Diagnostic) int {
	if diag.Subject == nil {
		return len(d.order)
	}
	return d.order[diag.Subject.Filename]
}

func startByte(diag *hcl.Diagnostic) int {
	if diag.Subject == nil {
		return 0
	}
	return diag.Subject.Start.Byte
}

func (d *decoder) problem(diag *hcl.Diagnostic, excerpts map[string]excerpt) Problem {
	p := Problem{Message: printable(strings.Join(strings.Fields(diag.Summary+": "+diag.Detail), " "))}
	s := diag.Subject
	if s == nil || s.Filename == "" || d.files[s.Filename] == nil {
		return p
	}
	f := d.files[s.Filename]
	p.File, p.Line, p.Column = s.Filename, s.Start.Line, s.Start.Column
	if f.Nav != nil {
		p.Block = printable(hcled.ContextString(f, s.Start.Byte))
	}
	text, ok := excerpts[s.Filename]
	if !ok {
		text = newExcerpt(f.Bytes)
		excerpts[s.Filename] = text
	}
	p.Excerpt = text.at(*s)
	return p
}
