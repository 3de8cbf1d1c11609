package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jorc/jorc/internal/text"
)

// Progress is how far something is that happens on several hosts. Its texts may
// hold anything: they are shown as text.
type Progress struct {
	Title       string    // what it is, and how far
	Since       time.Time // when it began; zero: not known
	Until       time.Time // when it ended; zero: it has not
	Done, Total int       // hosts
	Waits       string    // what the whole waits for; empty: nothing in particular
	Hosts       []Host    // with something to say, in any order
}

// Host is one line of a Progress.
type Host struct {
	Name  string
	Kind  Kind
	State string    // a word
	Since time.Time // of State; zero: not known
	Text  string    // why it failed, or what it waits for
}

// Kind decides about the place and the colour of a Host.
type Kind int

// Kinds of hosts, the most interesting one first.
const (
	Failed Kind = iota
	Working
	Waiting
)

// colours of kinds: parameters of SGR.
var colours = map[Kind]string{Failed: "31", Working: "33"}

// sorted returns p with its hosts in order: by kind, then by Since, the ones with the
// longest time first.
func (p Progress) sorted() Progress {
	p.Hosts = slices.Clone(p.Hosts)
	slices.SortStableFunc(p.Hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return p
}

// Summary returns what of p is worth to stay when it has ended: hosts that failed.
func (p Progress) Summary() Progress {
	p.Hosts = slices.DeleteFunc(slices.Clone(p.Hosts), func(h Host) bool { return h.Kind != Failed })
	p.Waits = ""
	return p
}

// Line returns p as one line without a bar.
func (p Progress) Line() string {
	return fmt.Sprintf("%s, %s", text.Printable(p.Title), p.count())
}

func (p Progress) count() string { return fmt.Sprintf("%d / %d", p.Done, p.Total) }

// Lines returns p as lines for a window of that size, p's hosts in order. What does
// not fit is counted in the last line.
func (p Progress) Lines(size Size, now time.Time, colour bool) []string {
	columns := size.Columns - 1 // some terminals wrap after the last column
	lines := []string{p.head(columns, now), p.bar(columns)}
	rows := size.Rows - 1 // the cursor has one
	if p.Waits != "" && rows > len(lines)+1 {
		lines = append(lines, fit("waits for: "+text.Printable(p.Waits), columns))
	}
	lines = lines[:max(0, min(len(lines), rows))]
	room := rows - len(lines)
	shown := p.Hosts
	if len(shown) > room {
		shown = shown[:max(0, room-1)]
	}
	for _, cells := range p.table(shown, columns, now) {
		lines = append(lines, cells.line(columns, colour))
	}
	if rest := p.Hosts[len(shown):]; len(rest) > 0 && room > 0 {
		lines = append(lines, fit(fmt.Sprintf("… and %d more: %s", len(rest), countStates(rest)), columns))
	}
	return lines
}

// head is the title, with the time since the beginning at the right.
func (p Progress) head(columns int, now time.Time) string {
	if !p.Until.IsZero() {
		now = p.Until
	}
	title, clock := text.Printable(p.Title), elapsed(p.Since, now)
	if clock == "" || columns < len(clock)+minTitle {
		return fit(title, columns)
	}
	return pad(title, columns-len(clock)-1) + " " + clock
}

const (
	minTitle = 16 // columns of a title beside which a clock has room
	minBar   = 10
	maxBar   = 60
)

// bar is [=====>    ] 3 / 8.
func (p Progress) bar(columns int) string {
	count := " " + p.count()
	inside := min(columns-len(count)-len("[]"), maxBar)
	if inside < minBar {
		return fit(strings.TrimSpace(count), columns)
	}
	full := 0
	if p.Total > 0 {
		full = inside * min(max(p.Done, 0), p.Total) / p.Total
	}
	bar := strings.Repeat("=", full)
	if full < inside {
		bar += ">" + strings.Repeat(" ", inside-full-1)
	}
	return "[" + bar + "]" + count
}

// row is one line of the table of hosts.
type row struct {
	name, state, clock, text string // padded, but the last
	kind                     Kind
}

// table aligns hosts.
func (p Progress) table(hosts []Host, columns int, now time.Time) []row {
	rows := make([]row, len(hosts))
	var name, state, clock int
	for i, h := range hosts {
		rows[i] = row{text.Printable(h.Name), text.Printable(h.State), elapsed(h.Since, now), text.Printable(h.Text), h.Kind}
		name = max(name, width(fit(rows[i].name, columns)))
		state, clock = max(state, width(rows[i].state)), max(clock, len(rows[i].clock))
	}
	name = min(name, max(8, columns/3)) // the reasons need room, too
	for i := range rows {
		r := &rows[i]
		r.name, r.state = pad(r.name, name), pad(r.state, state)
		r.clock = strings.Repeat(" ", clock-len(r.clock)) + r.clock
	}
	return rows
}

// line is the row as a line of at most so many columns.
func (r row) line(columns int, colour bool) string {
	line := fit(strings.TrimRight(strings.Join([]string{r.name, r.state, r.clock, r.text}, "  "), " "), columns)
	code := colours[r.kind]
	before := len(r.name) + len("  ")
	if after := before + len(strings.TrimRight(r.state, " ")); colour && code != "" && after <= len(line) && strings.HasPrefix(line, r.name) {
		return line[:before] + "\x1b[" + code + "m" + line[before:after] + "\x1b[0m" + line[after:]
	}
	return line
}

// countStates is "3 failed, 5 waiting", in the order in which they come.
func countStates(hosts []Host) string {
	n := map[string]int{}
	var states []string
	for _, h := range hosts {
		if n[h.State]++; n[h.State] == 1 {
			states = append(states, h.State)
		}
	}
	for i, s := range states {
		states[i] = fmt.Sprintf("%d %s", n[s], text.Printable(s))
	}
	return strings.Join(states, ", ")
}

// elapsed is the time since then as "1h02m", "3m04s" or "5s"; empty: not known.
func elapsed(since, now time.Time) string {
	d := max(now.Sub(since), 0)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case since.IsZero():
		return ""
	case h >= 48:
		return fmt.Sprintf("%dd%02dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}
