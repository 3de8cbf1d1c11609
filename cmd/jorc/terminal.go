package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/jorc/jorc/internal/blocker"
	"github.com/jorc/jorc/internal/terminal"
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

// terminalOf returns the file behind w if that is a terminal with colours and a cursor.
func terminalOf(w io.Writer) (*os.File, bool) {
	f, _ := underlying(w).(*os.File)
	return f, isTTY(w) && understandsEscapes(f)
}

// isTerminal reports whether w is a terminal; progress bars go nowhere else.
func isTerminal(w io.Writer) bool {
	_, ok := terminalOf(w)
	return ok
}

// isTTY reports whether r or w is a terminal, whatever that can show.
func isTTY(stream any) bool {
	if w, ok := stream.(io.Writer); ok {
		stream = underlying(w)
	}
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// readAnswer reads one line, in lower case and without the space around it, until ctx ends.
// At the end of r it is empty.
func readAnswer(ctx context.Context, r io.Reader) (string, error) {
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	go func() { // a read of a terminal cannot be ended
		text, err := bufio.NewReader(r).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		lines <- line{strings.ToLower(strings.TrimSpace(text)), err}
	}()
	select {
	case l := <-lines:
		return l.text, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// screen is the terminal behind stderr; nil: stderr is another file, or it cannot overwrite
// lines.
func (e *environment) screen() *terminal.Screen {
	f, ok := terminalOf(e.stderr)
	if !ok || e.getenv("TERM") == "dumb" {
		return nil
	}
	return terminal.NewScreen(f, func() terminal.Size { return sizeOf(f) })
}

// sizeOf is the size of f's window.
func sizeOf(f *os.File) terminal.Size {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns == 0 || rows == 0 {
		return terminal.Size{Columns: 80, Rows: 24}
	}
	return terminal.Size{Columns: columns, Rows: rows}
}

// quietWait is for how long a command that waits prints nothing where there is no
// terminal, and how long its lines are apart: logs of other programs show that it
// still waits, and scripts that end sooner print what they always did.
const quietWait = 30 * time.Second

// live shows the progress of something on stderr until it is stopped: with a running
// clock on a terminal, elsewhere as lines that are quiet apart.
func (e *environment) live(c *cli.Context, quiet time.Duration) *terminal.Live {
	if s := e.screen(); s != nil {
		return terminal.OnScreen(s, e.colour(e.stderr))
	}
	return terminal.PlainLines(quiet, func(line string) { note(c, "%s", line) })
}

// showMissing shows on s, the screen, what a wait for services still waits for.
func showMissing(s *terminal.Screen) func([]blocker.State) {
	if s == nil {
		return func([]blocker.State) {}
	}
	return func(states []blocker.State) {
		lines := blocker.Lines(states)
		for i, line := range lines {
			lines[i] = s.Fit("waiting for " + printable(line))
		}
		s.Draw(lines)
	}
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
	if !readAndWrite(f) {
		return false
	}
	have, err := f.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(have, null)
}
