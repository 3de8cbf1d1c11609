package config

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcled"

	"github.com/jorc/jorc/internal/text"
)

// maxProblems is the number of problems that one error lists.
const maxProblems = 50

// Error lists the problems of a configuration.
type Error struct {
	Problems []Problem
	More     int // problems beyond the listed ones

	causes []error
}

// Problem is one problem and its position.
type Problem struct {
	File         string // empty when the value is from a flag or the environment
	Line, Column int    // from 1; column 0: the line as a whole
	Block        string // such as `service "web"`; empty at the top of a file
	Message      string
	Excerpt      string // the line with secrets masked, and a mark below
	Fault        bool   // of a warning: what the agent starts with can never work
}

// Error returns each problem as "file:line,column: message" with the source line
// below it, without a newline at the end.
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

// Unwrap returns the errors of files that could not be read.
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

// err combines all problems.
func (d *decoder) err() error {
	e := &Error{causes: d.errs}
	for _, cause := range d.errs {
		e.Problems = append(e.Problems, Problem{Message: cause.Error()})
	}
	found, more := d.problems(hcl.DiagError)
	e.Problems, e.More = append(e.Problems, found...), more
	return e
}

// problems returns the diagnostics of one severity in the order of the files, and
// the number beyond the limit.
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

// rank sorts diagnostics without a file last.
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
	p := Problem{Message: printable(strings.Join(strings.Fields(diag.Summary+": "+diag.Detail), " ")), Fault: diag.Extra == fault{}}
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

// maxExcerpt is the number of characters of a line that an error shows.
const maxExcerpt = 120

// excerpt is a source file with its secrets masked.
type excerpt []byte

// secretName matches a name that suggests a secret and what stands before its value,
// secretFlag such a flag and, as the next argument, its value, userInfo passwords in URLs, and urlRest all that
// follows the host.
var (
	secretName = text.Pattern(`(?i)([\w.-]*(?:token|secret|passw|api_?key|credential|authorization)[\w.-]*)\\?"?\s*[=:]\s*(?:(?:bearer|basic)\s+)?`)
	secretFlag = text.Pattern(`(?i)"-[\w-]*(?:token|secret|passw|api_?key|credential|authorization)[\w-]*"\s*,\s*"((?:[^"\\\n]|\\.)*)`)
	userInfo   = text.Pattern(`://([^/\s"@]*)@`)
	urlRest    = text.Pattern(`(?i)https?://[^/?#\s"]*[/?#]([^\s"]+)`)
	heredoc    = text.Pattern(`^<<-?(\w+)\r?\n`)
)

func newExcerpt(src []byte) excerpt {
	out := bytes.Clone(src)
	done := 0 // values are masked up to here
	for _, m := range secretName().FindAllSubmatchIndex(src, -1) {
		if name := bytes.ToLower(src[m[2]:m[3]]); m[1] >= done && !bytes.HasSuffix(name, []byte("_file")) {
			done = maskValue(src, out, m[1])
		}
	}
	for _, re := range []*regexp.Regexp{secretFlag(), userInfo(), urlRest()} {
		for _, m := range re.FindAllSubmatchIndex(src, -1) {
			mask(out[m[2]:m[3]])
		}
	}
	return out
}

// maskValue masks the strings and numbers of the value that begins at i, and returns its end. The syntax
// of src may be wrong, and the value may be a part of a string.
func maskValue(src, out []byte, i int) (end int) {
	for depth := 0; i < len(src) && depth >= 0; {
		switch c := src[i]; {
		case c == '"':
			end := stringEnd(src, i+1)
			mask(out[i+1 : end])
			i = end + 1
		case c == '<' && heredoc().Match(src[i:min(i+maxExcerpt, len(src))]):
			m := heredoc().FindSubmatchIndex(src[i:])
			end := heredocEnd(src, i+m[1], src[i+m[2]:i+m[3]])
			mask(out[i+m[1] : end])
			i = end
		case strings.IndexByte("[{(", c) >= 0:
			depth++
			i++
		case strings.IndexByte("]})", c) >= 0:
			depth--
			i++
		case depth == 0 && (c == ',' || c == '\n'):
			return i
		case strings.IndexByte(" \t\r\n,=:<", c) >= 0:
			i++
		default:
			word := i
			for i < len(src) && strings.IndexByte(" \t\r\n,=:\"'[](){}", src[i]) < 0 {
				i++
			}
			i = max(i, word+1) // of another character
			switch rest := bytes.TrimLeft(src[i:min(i+maxExcerpt, len(src))], " \t"); {
			case depth > 0 && len(rest) > 0 && (rest[0] == '=' || rest[0] == ':'): // a name
			case slices.Contains([]string{"true", "false", "null"}, string(src[word:i])):
			default:
				mask(out[word:i])
			}
			if depth == 0 {
				return i
			}
		}
	}
	return min(i, len(src))
}

// stringEnd returns where a string ends: at its quote or, if that is missing, with the line.
func stringEnd(src []byte, i int) int {
	for ; i < len(src) && src[i] != '"' && src[i] != '\n'; i++ {
		if src[i] == '\\' {
			i++
		}
	}
	return min(i, len(src))
}

// heredocEnd returns where the line begins that ends a heredoc.
func heredocEnd(src []byte, i int, marker []byte) int {
	for i < len(src) {
		line, _, more := bytes.Cut(src[i:], []byte("\n"))
		if bytes.Equal(bytes.TrimSpace(line), marker) {
			return i
		}
		i += len(line)
		if more {
			i++
		}
	}
	return len(src)
}

func mask(b []byte) {
	for i := range b {
		if b[i] != '\n' {
			b[i] = '*'
		}
	}
}

// at returns the line of rng with its number, and a mark below rng.
func (e excerpt) at(rng hcl.Range) string {
	at := min(max(rng.Start.Byte, 0), len(e))
	begin := bytes.LastIndexByte(e[:at], '\n') + 1
	end := len(e)
	if i := bytes.IndexByte(e[at:], '\n'); i >= 0 {
		end = at + i
	}
	to := min(max(rng.End.Byte, at), end)
	before := []rune(printable(string(e[begin:at])))
	marked := []rune(printable(string(e[at:to])))
	after := []rune(printable(string(e[to:end])))
	if cut := len(before) - maxExcerpt/2; cut > 0 {
		before = append([]rune("…"), before[cut:]...)
	}
	marked = shorten(marked, maxExcerpt-len(before))
	after = shorten(after, maxExcerpt-len(before)-len(marked))
	lead := fmt.Sprintf("%5d: ", rng.Start.Line)
	return lead + strings.TrimRight(string(before)+string(marked)+string(after), " ") + "\n" +
		strings.Repeat(" ", len(lead)+len(before)) + strings.Repeat("^", max(1, len(marked)))
}

func shorten(r []rune, most int) []rune {
	if len(r) <= most {
		return r
	}
	return append(r[:max(0, most):max(0, most)], '…')
}

// printable replaces characters that control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(s, "\r"), "\uFFFD"))
}
