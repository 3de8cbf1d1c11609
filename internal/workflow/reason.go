package workflow

import (
	"bytes"
	"slices"
	"strings"

	"github.com/jorc/jorc/internal/text"
)

// maxLine bounds what a line of output adds to a line about it, in characters.
const maxLine = 160

// maxErrorOutput bounds what an errorOutput keeps, in bytes.
const maxErrorOutput = 4096

// errorOutput is written the whole output of a task and keeps the last line that says
// an error: a tool such as Puppet reports much between its error and its end. It also
// keeps what follows that line: an encoded value may be wrapped into several lines and
// is redacted as a whole.
type errorOutput struct {
	line  []byte // the line that is being written
	long  bool   // it has more than maxErrorOutput bytes, and is not a reason
	found []byte
}

// Write takes everything.
func (e *errorOutput) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		room := maxErrorOutput - len(e.line)
		e.long = e.long || len(part) > room
		e.line = append(e.line, part[:min(len(part), room)]...)
		if part[len(part)-1] == '\n' {
			e.end()
		}
	}
	return len(p), nil
}

// end ends the line that is being written.
func (e *errorOutput) end() {
	says := !e.long && saysError(string(e.line))
	if says {
		e.found = e.found[:0]
	}
	if says || len(e.found) > 0 {
		e.found = append(e.found, e.line[:min(len(e.line), maxErrorOutput-len(e.found))]...)
	}
	e.line, e.long = e.line[:0], false
}

// text returns the last line that says an error, and what follows it, as valid UTF-8.
func (e *errorOutput) text() string {
	e.end()
	return text.Head(string(e.found), maxErrorOutput)
}

// saysError reports whether a line of output says an error.
func saysError(line string) bool {
	return strings.Contains(strings.ToLower(colours().ReplaceAllString(line, "")), "error:")
}

// reason is what a failed task's output says about the failure, after a colon: the
// last line that says an error, which said begins with, otherwise the last line of output.
func reason(said, output string) string {
	first, _, _ := strings.Cut(said, "\n")
	if line := plainLine(first); line != "" {
		return ": " + line
	}
	return lastLine(output)
}

// lastLine is the last line of output that is not empty, after a colon.
func lastLine(output string) string {
	for _, line := range slices.Backward(strings.Split(output, "\n")) {
		if line = plainLine(line); line != "" {
			return ": " + line
		}
	}
	return ""
}

// colours matches the sequences that colour a terminal.
var colours = text.Pattern("\x1b\\[[0-9;]*m")

// plainLine is a line of output without colours, control characters and what exceeds
// maxLine.
func plainLine(line string) string {
	line = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, colours().ReplaceAllString(line, "")))
	if r := []rune(line); len(r) > maxLine {
		line = string(r[:maxLine-1]) + "…"
	}
	return line
}
