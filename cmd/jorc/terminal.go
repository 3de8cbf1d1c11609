package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/blocker"
)

// safeWriter is the last place that all text passes on its way to stdout and
// stderr. Names, values and outputs come from others, and may hold bytes that steer a
// terminal: control characters but newlines, bytes that are not UTF-8, and characters
// that turn the direction of text are escaped (\u001b, \x9b), as JSON does too. A
// tab becomes blanks.
type safeWriter struct {
	mu     sync.Mutex
	to     io.Writer
	held   []byte // the beginning of a character, or a \r
	column int    // in the present line; for tabs
	err    error  // the first
}

// tabStop is the distance of a terminal's tab stops.
const tabStop = 8

func safe(w io.Writer) *safeWriter { return &safeWriter{to: w} }

func (s *safeWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := p
	if len(s.held) > 0 {
		text = append(s.held, p...)
	}
	text, s.held = cutHeld(text)
	if _, err := io.WriteString(s.to, s.escape(text)); err != nil {
		s.err = cmp.Or(s.err, err)
		return 0, err
	}
	return len(p), nil
}

// flush writes what was held back: there is no more. It returns the first error of
// all writes, also of those whose callers ignored it.
func (s *safeWriter) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) > 0 {
		_, err := io.WriteString(s.to, s.escape(s.held))
		s.held, s.err = nil, cmp.Or(s.err, err)
	}
	return s.err
}

// cutHeld cuts off a last character that is not complete.
func cutHeld(text []byte) (whole, held []byte) {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		last := text[len(text)-n:]
		if n == 1 && last[0] == '\r' || utf8.RuneStart(last[0]) && !utf8.FullRune(last) {
			return text[:len(text)-n], append([]byte{}, last...)
		}
	}
	return text, nil
}

// escape makes text safe. A \r before a newline is dropped.
func (s *safeWriter) escape(text []byte) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		piece := string(text[:size])
		switch {
		case r == '\r' && len(text) > 1 && text[1] == '\n':
			piece = ""
		case r == '\t':
			piece = strings.Repeat(" ", tabStop-s.column%tabStop)
		case r == utf8.RuneError && size == 1:
			piece = fmt.Sprintf(`\x%02x`, text[0])
		case r != '\n' && steers(r):
			piece = fmt.Sprintf(`\u%04x`, r)
		}
		s.column += utf8.RuneCountInString(piece)
		if r == '\n' {
			s.column = 0
		}
		b.WriteString(piece)
		text = text[size:]
	}
	return b.String()
}

// steers reports whether a terminal does something else with r than show it.
func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// underlying is where a safeWriter writes to. What is written there is safe
// already (cells, between jorc's own tabs and colours), or is not jorc's text: the
// output of a program that the user named.
func underlying(w io.Writer) io.Writer {
	if s, ok := w.(*safeWriter); ok {
		return s.to
	}
	return w
}

// rawData is where data goes that is promised byte for byte: unchanged, unless a
// terminal would show it.
func rawData(w io.Writer) io.Writer {
	if isTerminal(w) {
		return w
	}
	return underlying(w)
}

// terminalOf returns the file behind w if that is a terminal.
func terminalOf(w io.Writer) (*os.File, bool) {
	f, ok := underlying(w).(*os.File)
	return f, ok && isatty.IsTerminal(f.Fd())
}

// isTerminal reports whether w is a terminal; progress bars go nowhere else.
func isTerminal(w io.Writer) bool {
	_, ok := terminalOf(w)
	return ok
}

// screen shows on a terminal what is still missing, a line per target, and
// overwrites its lines when something changes.
type screen struct {
	w     io.Writer // nil: not a terminal
	width func() int
	lines int // drawn last
}

func (e *environment) screen() *screen {
	f, ok := terminalOf(e.stderr)
	if !ok || e.getenv("TERM") == "dumb" {
		return &screen{}
	}
	return &screen{w: f, width: func() int { return widthOf(f) }}
}

// draw shows states; it is the progress of a wait.
func (s *screen) draw(states []blocker.State) {
	if s.w == nil {
		return
	}
	var b strings.Builder
	b.WriteString(s.erase())
	width := s.width()
	lines := blocker.Lines(states)
	for _, line := range lines {
		b.WriteString(fit("waiting for "+printable(line), width) + "\n")
	}
	s.lines = len(lines)
	_, _ = io.WriteString(s.w, b.String()) // nothing to do about a terminal that went away
}

// clear leaves nothing of what was drawn.
func (s *screen) clear() {
	if s.w != nil {
		_, _ = io.WriteString(s.w, s.erase()) // as above
		s.lines = 0
	}
}

func (s *screen) erase() string {
	if s.lines == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", s.lines)
}

// fit cuts a line that the terminal would wrap: erase counts lines.
func fit(line string, width int) string {
	if r := []rune(line); len(r) >= width {
		return string(r[:max(width-2, 0)]) + "…"
	}
	return line
}

func widthOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// mayBeClosed reports whether stdout may have been closed when jorc was started
// (">&-"). Go's runtime then opens /dev/null for reading and writing in its place,
// before any code of jorc runs; from a caller that redirects to /dev/null in the
// same way it cannot be distinguished. A shell's ">/dev/null" only writes.
func mayBeClosed(w io.Writer) bool {
	f, ok := underlying(w).(*os.File)
	if !ok {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	have, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(have, null)
}
