package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jorc/jorc/internal/blocker"
)

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
