// Package terminal shows the progress of something long on a terminal: lines that
// are overwritten when it changes, and a clock. Where there is no terminal it
// prints plain lines.
//
// It only writes. The terminal's modes stay as they are and the cursor stays
// visible, so nothing has to be restored when the process is killed.
package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Size is the size of a terminal's window in cells.
type Size struct{ Columns, Rows int }

// Screen shows lines on a terminal and overwrites them with the next ones. It is
// not safe for concurrent use.
type Screen struct {
	w     io.Writer
	size  func() Size
	drawn []string // lines that are on the terminal now
	at    Size     // that they were drawn for
}

// NewScreen returns a screen on the terminal that w writes to. size is asked
// before each drawing.
func NewScreen(w io.Writer, size func() Size) *Screen { return &Screen{w: w, size: size} }

// Control sequences.
const (
	noWrap   = "\x1b[?7l" // a line that is longer than it should be does not become two
	wrap     = "\x1b[?7h"
	eraseEnd = "\x1b[K" // to the end of the line
	eraseAll = "\x1b[J" // to the end of the window
)

// Draw shows lines in place of the ones before. Each is at most as wide as the
// window. Nothing is written when nothing changed.
func (s *Screen) Draw(lines []string) {
	size := s.size()
	if slices.Equal(lines, s.drawn) && size == s.at {
		return
	}
	var b strings.Builder
	b.WriteString(s.home(size.Columns) + noWrap)
	for _, line := range lines {
		b.WriteString(line + eraseEnd + "\n")
	}
	b.WriteString(eraseAll + wrap)
	_, _ = io.WriteString(s.w, b.String()) // nothing to do about a terminal that went away
	s.drawn, s.at = lines, size
}

// Fit cuts a line that is wider than the window.
func (s *Screen) Fit(line string) string { return fit(line, s.size().Columns-1) }

// Clear removes what was drawn. It may be called on nil.
func (s *Screen) Clear() {
	if s != nil && len(s.drawn) > 0 {
		_, _ = io.WriteString(s.w, s.home(s.size().Columns)+eraseAll) // as above
		s.drawn = nil
	}
}

// home moves the cursor to the beginning of what was drawn. Lines that are longer
// than a window that became narrower take more than one row of it now.
func (s *Screen) home(columns int) string {
	rows := 0
	for _, line := range s.drawn {
		rows += max(1, (width(line)+columns-1)/max(columns, 1))
	}
	if rows == 0 {
		return "\r"
	}
	return fmt.Sprintf("\r\x1b[%dA", rows)
}

// cells counts the cells of text. Terminals do not agree on characters that are
// wide only in East Asian fonts; here they are narrow.
var cells = runewidth.Condition{StrictEmojiNeutral: true}

// width is the number of cells of a line, with or without colours.
func width(line string) int {
	n := 0
	for line != "" {
		before, after, _ := strings.Cut(line, "\x1b[")
		n += cells.StringWidth(before)
		_, line, _ = strings.Cut(after, "m")
	}
	return n
}

// mostMarks bounds the bytes of one cell: characters that combine take none.
const mostMarks = 16

// fit cuts text that is wider than columns.
func fit(text string, columns int) string {
	if columns <= 0 {
		return ""
	}
	if most := columns * mostMarks; len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if cells.StringWidth(text) <= columns {
		return text
	}
	return cells.Truncate(text, columns, "…")
}

// pad fits text into exactly so many columns.
func pad(text string, columns int) string {
	text = fit(text, columns)
	return text + strings.Repeat(" ", max(0, columns-cells.StringWidth(text)))
}
